//! Static files of the page. The scripts share one scope and are loaded in this order.

pub(crate) const HTML: &str = include_str!("page/index.html");
pub(crate) const STYLE: &str = include_str!("page/style.css");
pub(crate) const SCRIPTS: [(&str, &str); 4] = [
    ("/data.js", include_str!("page/data.js")),
    ("/figure.js", include_str!("page/figure.js")),
    ("/details.js", include_str!("page/details.js")),
    ("/page.js", include_str!("page/page.js")),
];
