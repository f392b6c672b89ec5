//! All numbers of a model by name, and as one flat tensor in a fixed order.
//!
//! Optimiser, moving average and checkpoints see a model as one vector of trainable numbers and a
//! list of running statistics. The order is that of the fields, so it never depends on a hash.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Shape, Tensor, TensorData};

use crate::nn::Statistic;

/// One named array of numbers of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedParam {
    /// Path of fields, such as `layers.0.attention.output.weight`.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Whether gradients change it; running statistics are saved but not trained.
    pub trainable: bool,
}

impl NamedParam {
    /// How many numbers it has.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Lists the numbers of a model.
pub fn named_params<M: Module>(model: &M) -> Vec<NamedParam> {
    let mut entries = Vec::new();
    each(model, |name, shape, _| {
        entries.push(NamedParam { name: name.to_owned(), shape, trainable: is_trainable(name) });
    });
    entries
}

/// How many numbers gradients change.
pub fn count<M: Module>(model: &M) -> usize {
    named_params(model).iter().filter(|entry| entry.trainable).map(NamedParam::count).sum()
}

/// Every number by name.
pub fn named_tensors<M: Module>(model: &M) -> Vec<(NamedParam, Tensor<1>)> {
    let mut values = Vec::new();
    each(model, |name, shape, tensor| {
        values.push((
            NamedParam { name: name.to_owned(), shape, trainable: is_trainable(name) },
            tensor,
        ));
    });
    values
}

/// `[count]` all trainable numbers, one after another, without gradients.
pub fn flatten<M: Module>(model: &M) -> Tensor<1> {
    let trainable = named_tensors(model).into_iter().filter(|(entry, _)| entry.trainable);
    Tensor::cat(trainable.map(|(_, tensor)| tensor).collect(), 0)
}

/// One tensor `[count]` a trainable entry, in order; zeros where a loss does not depend on one.
pub fn gradients<M: Module>(model: &M, gradients: &mut Gradients) -> Vec<Tensor<1>> {
    struct Collect<'a> {
        path: Path,
        gradients: &'a mut Gradients,
        found: Vec<Tensor<1>>,
    }
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.enter(name);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if is_trainable(&self.path.name()) {
                let value = param.val();
                let gradient =
                    value.grad_remove(self.gradients).unwrap_or_else(|| value.inner().zeros_like());
                self.found.push(flat(gradient));
            }
        }
    }
    let mut collect = Collect { path: Path::default(), gradients, found: Vec::new() };
    model.visit(&mut collect);
    collect.found
}

/// The model with its trainable numbers replaced by those of `flat`, as [`flatten`] orders them.
pub fn assign<M: Module>(model: M, flat: &Tensor<1>) -> M {
    let mut start = 0;
    let model = replace(model, |name, shape| {
        is_trainable(name).then(|| {
            let end = start + shape.num_elements();
            let values = flat.clone().slice([start..end]);
            start = end;
            values
        })
    });
    assert_eq!(start, flat.dims()[0], "the flat tensor belongs to another model");
    model
}

/// The model with running statistics moved towards `statistics`: `(1 - rate) old + rate new`.
pub fn update_running_stats<M: Module>(model: M, statistics: &[Statistic], rate: f64) -> M {
    struct Update<'a>(&'a [Statistic], f64);
    impl ModuleMapper for Update<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let found = self.0.iter().find(|statistic| statistic.id == param.id);
            match found {
                None => param,
                Some(statistic) => param.map(|old| {
                    let new = statistic.value.clone().reshape(old.dims());
                    if old.is_autodiff() {
                        Tensor::from_inner(old.inner() * (1.0 - self.1) + new * self.1)
                    } else {
                        old * (1.0 - self.1) + new * self.1
                    }
                }),
            }
        }
    }
    model.map(&mut Update(statistics, rate))
}

/// The model with all numbers replaced by `find(name)`.
///
/// # Errors
/// The first name that is not found or does not have the right shape.
pub fn load<M: Module>(
    model: M,
    mut find: impl FnMut(&str) -> Option<TensorData>,
) -> Result<M, LoadError> {
    let mut fault = None;
    let model = replace(model, |name, shape| {
        let found = find(name);
        match &found {
            Some(data) if data.shape() == shape => {
                let values: Vec<f64> = data.iter::<f64>().collect(); // exact for f32 and f64
                let data = TensorData::new(values, [shape.num_elements()]);
                Some(Tensor::from_data(data, (&Device::flex(), DType::F64)))
            }
            _ => {
                fault.get_or_insert(LoadError {
                    name: name.to_owned(),
                    expected: shape.to_vec(),
                    found: found.map(|data| data.shape().to_vec()),
                });
                None
            }
        }
    });
    match fault {
        Some(fault) => Err(fault),
        None => Ok(model),
    }
}

/// Weights that do not belong to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model expects `{name}` of shape {expected:?}, but the weights {}", match found {
    Some(shape) => format!("have it as {shape:?}"),
    None => "do not have it".to_owned(),
})]
pub struct LoadError {
    /// Which array.
    pub name: String,
    /// What the model expects.
    pub expected: Vec<usize>,
    /// What there is.
    pub found: Option<Vec<usize>>,
}

fn is_trainable(name: &str) -> bool {
    !name.rsplit('.').next().is_some_and(|field| field.starts_with("running_"))
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let count = tensor.shape().num_elements();
    tensor.reshape([count])
}

/// Fields entered so far.
#[derive(Debug, Default)]
struct Path(Vec<String>);

impl Path {
    fn enter(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    fn exit(&mut self) {
        self.0.pop();
    }

    fn name(&self) -> String {
        self.0.join(".")
    }
}

/// Calls `seen` with name, shape and flat inner tensor of every entry.
fn each<M: Module>(model: &M, seen: impl FnMut(&str, Vec<usize>, Tensor<1>)) {
    struct Visit<F>(Path, F);
    impl<F: FnMut(&str, Vec<usize>, Tensor<1>)> ModuleVisitor for Visit<F> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.enter(name);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.val();
            let shape = tensor.shape().to_vec();
            let inner = if tensor.is_autodiff() { tensor.inner() } else { tensor };
            (self.1)(&self.0.name(), shape, flat(inner));
        }
    }
    model.visit(&mut Visit(Path::default(), seen));
}

/// Replaces each entry for which `find` has a flat tensor.
fn replace<M: Module>(model: M, find: impl FnMut(&str, &Shape) -> Option<Tensor<1>>) -> M {
    struct Replace<F>(Path, F);
    impl<F: FnMut(&str, &Shape) -> Option<Tensor<1>>> ModuleMapper for Replace<F> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.0.enter(name);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let old = param.val();
            match (self.1)(&self.0.name(), &old.shape()) {
                None => param,
                Some(values) => {
                    let new = values.reshape(old.shape()).cast(old.dtype());
                    let new = if old.is_autodiff() { Tensor::from_inner(new) } else { new };
                    let new = new.to_device(&old.device());
                    let tracked = old.is_require_grad();
                    param.map(|_| if tracked { new.require_grad() } else { new })
                }
            }
        }
    }
    model.map(&mut Replace(Path::default(), find))
}
