//! Module declarations, imports and paths of one source file.
//!
//! Works on tokens, so comments, strings and nesting need no attention. Code that is compiled only
//! for tests is skipped.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// Path of a module below the crate root; the root is empty.
pub(crate) type ModulePath = Vec<String>;

/// Contents of a source file that determine module dependencies.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) references: Vec<Reference>,
    pub(crate) names: Vec<ImportedName>,
}

/// A declaration `mod name;`, or an inline module.
#[derive(Debug)]
pub(crate) struct Declaration {
    pub(crate) parent: ModulePath,
    pub(crate) name: String,
    pub(crate) is_inline: bool,
}

/// A path in a `use` declaration, or one in code that begins with `crate`, `self` or `super`.
#[derive(Debug)]
pub(crate) struct Reference {
    /// Module that contains the path.
    pub(crate) module: ModulePath,
    /// Segments as written.
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// A name that a `use` declaration brings into a module.
#[derive(Debug)]
pub(crate) struct ImportedName {
    pub(crate) module: ModulePath,
    pub(crate) name: String,
    /// Path that it refers to, as written.
    pub(crate) path: Vec<String>,
}

impl Source {
    /// Scans the file of the module at `module`.
    ///
    /// # Errors
    /// Returns an error if the text is not a sequence of Rust tokens.
    pub(crate) fn scan(text: &str, module: &ModulePath) -> Result<Self, proc_macro2::LexError> {
        let mut source = Self::default();
        source.scan_tokens(text.parse()?, module);
        Ok(source)
    }

    fn scan_tokens(&mut self, tokens: TokenStream, module: &ModulePath) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    match attribute(&tokens[at..]) {
                        Some((group, len)) if is_test_only(group) => {
                            len + item_len(&tokens[at + len..])
                        }
                        Some((_, len)) => len,
                        None => 1,
                    }
                }
                TokenTree::Ident(ident) if ident == "mod" => {
                    self.declaration(&tokens[at..], module)
                }
                // `use<…>` in a return type is a list of captured parameters.
                TokenTree::Ident(ident)
                    if ident == "use"
                        && !tokens.get(at + 1).is_some_and(|token| is_punct(token, '<')) =>
                {
                    let len = tokens[at..].iter().position(is_semicolon).unwrap_or(1);
                    self.use_tree(&tokens[at + 1..at + len], &[], module);
                    len
                }
                TokenTree::Ident(ident)
                    if ["crate", "self", "super"].iter().any(|root| ident == root) =>
                {
                    let (path, len) = path(&tokens[at..]);
                    if path.len() > 1 {
                        let line = ident.span().start().line;
                        self.references.push(Reference { module: module.clone(), path, line });
                    }
                    len
                }
                TokenTree::Group(group) => {
                    self.scan_tokens(group.stream(), module);
                    1
                }
                _ => 1,
            };
        }
    }

    /// Reads a module declaration and returns its length.
    fn declaration(&mut self, tokens: &[TokenTree], module: &ModulePath) -> usize {
        let Some(TokenTree::Ident(name)) = tokens.get(1) else { return 1 };
        let name = name.to_string();
        let inline = match tokens.get(2) {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => Some(group),
            Some(token) if is_semicolon(token) => None,
            _ => return 1,
        };
        if let Some(group) = inline {
            let inner: ModulePath = [&module[..], std::slice::from_ref(&name)].concat();
            self.scan_tokens(group.stream(), &inner);
        }
        let is_inline = inline.is_some();
        self.declarations.push(Declaration { parent: module.clone(), name, is_inline });
        3
    }

    /// Reads one tree of a `use` declaration, such as `a::{b, c as d}`, below the path `prefix`.
    fn use_tree(&mut self, tokens: &[TokenTree], prefix: &[String], module: &ModulePath) {
        let Some(first) = tokens.first() else { return };
        let (mut segments, len) = path(tokens);
        // `{self}` is the prefix itself.
        if !prefix.is_empty() && segments == ["self"] {
            segments.clear();
        }
        let full = [prefix, &segments].concat();
        match tokens.get(len) {
            Some(TokenTree::Group(group)) => {
                let trees: Vec<TokenTree> = group.stream().into_iter().collect();
                for tree in trees.split(|token| is_punct(token, ',')) {
                    self.use_tree(tree, &full, module);
                }
            }
            next => {
                let name = match (next, tokens.get(len + 1)) {
                    (Some(TokenTree::Ident(keyword)), Some(TokenTree::Ident(alias)))
                        if keyword == "as" =>
                    {
                        Some(alias.to_string())
                    }
                    (Some(token), _) if is_punct(token, '*') => None,
                    _ => full.last().cloned(),
                };
                if let Some(name) = name {
                    let path = full.clone();
                    self.names.push(ImportedName { module: module.clone(), name, path });
                }
                let line = first.span().start().line;
                self.references.push(Reference { module: module.clone(), path: full, line });
            }
        }
    }
}

/// Returns the attribute at the start of `tokens` and its length.
fn attribute(tokens: &[TokenTree]) -> Option<(&Group, usize)> {
    let at = if tokens.get(1).is_some_and(|token| is_punct(token, '!')) { 2 } else { 1 };
    match tokens.get(at) {
        Some(TokenTree::Group(group)) => Some((group, at + 1)),
        _ => None,
    }
}

/// Returns whether an attribute is `test`, `cfg(test)`, `cfg(doctest)` or `cfg(all(test, …))`.
fn is_test_only(attribute: &Group) -> bool {
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match &tokens[..] {
        [TokenTree::Ident(name)] => name == "test",
        [TokenTree::Ident(name), TokenTree::Group(condition)] if name == "cfg" => {
            let condition: Vec<TokenTree> = condition.stream().into_iter().collect();
            match &condition[..] {
                [TokenTree::Ident(name)] => name == "test" || name == "doctest",
                [TokenTree::Ident(all), TokenTree::Group(terms)] if all == "all" => terms
                    .stream()
                    .into_iter()
                    .any(|term| matches!(term, TokenTree::Ident(name) if name == "test")),
                _ => false,
            }
        }
        _ => false,
    }
}

/// Returns the length of the item at the start of `tokens`: up to its body or semicolon.
fn item_len(tokens: &[TokenTree]) -> usize {
    let is_end = |token: &TokenTree| {
        is_semicolon(token)
            || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |end| end + 1)
}

/// Returns the segments of the path at the start of `tokens`, and its length including a `::`
/// before a brace or a star.
fn path(tokens: &[TokenTree]) -> (Vec<String>, usize) {
    let mut segments = Vec::new();
    let mut len = if is_path_separator(tokens) { 2 } else { 0 };
    while let Some(TokenTree::Ident(segment)) = tokens.get(len) {
        segments.push(segment.to_string());
        len += 1;
        if !is_path_separator(&tokens[len..]) {
            break;
        }
        len += 2;
    }
    (segments, len)
}

fn is_path_separator(tokens: &[TokenTree]) -> bool {
    matches!(
        tokens,
        [TokenTree::Punct(first), TokenTree::Punct(second), ..]
            if first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':'
    )
}

fn is_semicolon(token: &TokenTree) -> bool {
    is_punct(token, ';')
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Source {
        Source::scan(text, &vec!["m".to_owned()]).expect("valid tokens")
    }

    /// Returns `module: path` of every reference, in order.
    fn references(text: &str) -> Vec<String> {
        let source = scan(text);
        let references = source.references.iter();
        references
            .map(|reference| {
                format!("{}: {}", reference.module.join("::"), reference.path.join("::"))
            })
            .collect()
    }

    #[test]
    fn use_trees_are_expanded() {
        assert_eq!(
            references(
                "pub(crate) use crate::a::{b, c::{self, D as E}, f::*};\nuse super::{g, h::I};"
            ),
            [
                "m: crate::a::b",
                "m: crate::a::c",
                "m: crate::a::c::D",
                "m: crate::a::f",
                "m: super::g",
                "m: super::h::I",
            ]
        );
    }

    #[test]
    fn renamed_import_is_known_by_its_new_name() {
        let source = scan("pub use crate::a::{B as C, d};");
        let names: Vec<(&str, String)> =
            source.names.iter().map(|name| (&name.name[..], name.path.join("::"))).collect();
        assert_eq!(names, [("C", "crate::a::B".to_owned()), ("d", "crate::a::d".to_owned())]);
    }

    #[test]
    fn paths_in_code_and_macros_are_found_with_their_line() {
        let text = "fn f() -> crate::a::B {\n    if x { vec![\n super::super::c::d::<u8>(1)] }\n}";
        let source = scan(text);
        let found: Vec<(String, usize)> =
            source.references.iter().map(|found| (found.path.join("::"), found.line)).collect();
        assert_eq!(found, [("crate::a::B".into(), 1), ("super::super::c::d".into(), 3)]);
    }

    #[test]
    fn captured_parameters_are_not_an_import() {
        assert_eq!(
            references("fn f<'a>() -> impl Sized + use<'a> { crate::a::b() }\nfn g() {}"),
            ["m: crate::a::b"]
        );
    }

    #[test]
    fn comments_strings_and_visibilities_are_not_references() {
        let text = "//! [`crate::a`]\n/// [b](crate::b)\npub(crate) fn f(self) {\n\
                    // crate::c\n/* crate::d */ \"crate::e\"; self.g; r#\"crate::h\"#;\n}\n\
                    pub(super) struct S;";
        assert!(references(text).is_empty(), "{:?}", references(text));
    }

    #[test]
    fn test_code_is_skipped_up_to_the_end_of_its_item() {
        let text = "#[cfg(test)]\nmod tests { use crate::a; }\n\
                    #[cfg(test)] use crate::b;\n\
                    #[cfg(all(test, unix))] fn g<A, B>() { crate::c::d() }\n\
                    #[test] #[expect(x)] fn t() { crate::e::f() }\n\
                    #[cfg(test)] mod more;\n\
                    #[cfg(not(test))] use crate::live;\nfn h() { crate::also::live() }";
        assert_eq!(references(text), ["m: crate::live", "m: crate::also::live"]);
        assert!(scan(text).declarations.is_empty());
    }

    #[test]
    fn declarations_keep_their_order_and_inline_modules_their_content() {
        let source = scan("pub mod b;\nmod a { use super::b; mod inner; }\npub(crate) mod c;");
        let declared: Vec<(String, &str, bool)> = source
            .declarations
            .iter()
            .map(|found| (found.parent.join("::"), &found.name[..], found.is_inline))
            .collect();
        assert_eq!(
            declared,
            [
                ("m".into(), "b", false),
                ("m::a".into(), "inner", false),
                ("m".into(), "a", true),
                ("m".into(), "c", false),
            ]
        );
        assert_eq!(source.references[0].module, ["m", "a"]);
    }
}
