//! Named parameters of a model, and trainable parameters as one flat tensor in a fixed order.
//!
//! The optimizer, the exponential moving average and the checkpoints treat a model as one vector of
//! trainable parameters and a list of running statistics. The order is that of the struct fields.
//!
//! ```
//! use graph_diffuser::nn::{Linear, ParamInit};
//! use graph_diffuser::{Device, parameters};
//! use graph_diffuser_data::SeedTree;
//!
//! let layer = Linear::new(3, 2, &mut ParamInit::new(SeedTree::new(0), &Device::flex()));
//! let names = parameters::named_params(&layer).into_iter().map(|param| param.name);
//! assert_eq!(names.collect::<Vec<_>>(), ["weight", "bias"]);
//! assert_eq!(parameters::count(&layer), 8);
//! ```

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Shape, Tensor, TensorData};

use crate::nn::Statistic;

/// Name and shape of a parameter or buffer of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedParam {
    /// Path of fields, such as `layers.0.attention.output.weight`.
    pub name: String,
    /// Shape.
    pub shape: Vec<usize>,
    /// If `true`, it is trained; running statistics are saved but not trained.
    pub trainable: bool,
}

impl NamedParam {
    /// Returns the number of elements.
    ///
    /// The number of a shape that no memory could hold may be limited to `usize::MAX`.
    pub fn count(&self) -> usize {
        self.shape.iter().fold(1, |count: usize, &size| count.saturating_mul(size))
    }
}

/// Lists all parameters and buffers of a model, which may have
/// [shapes only](crate::nn::ParamInit::shapes_only).
pub fn named_params<M: Module>(model: &M) -> Vec<NamedParam> {
    struct Visit(Path, Vec<NamedParam>);
    impl ModuleVisitor for Visit {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let (name, shape) = (self.0.name(), param.lazy_shape().to_vec());
            let trainable = is_trainable(&name);
            self.1.push(NamedParam { name, shape, trainable });
        }
    }
    let mut visit = Visit(Path::default(), Vec::new());
    model.visit(&mut visit);
    visit.1
}

/// Returns the number of trainable parameters.
pub fn count<M: Module>(model: &M) -> usize {
    let trainable = named_params(model).into_iter().filter(|param| param.trainable);
    trainable.fold(0, |sum: usize, param| sum.saturating_add(param.count()))
}

/// Returns the device of a model, with or without autodiff.
///
/// # Panics
/// Panics if the model has no parameters.
pub fn device<M: Module>(model: &M) -> Device {
    model.devices().into_iter().next().expect("a model has parameters")
}

/// Returns all parameters and buffers with their values as flat tensors, without gradients.
pub fn named_tensors<M: Module>(model: &M) -> Vec<(NamedParam, Tensor<1>)> {
    let mut values = Vec::new();
    visit_tensors(model, |name, shape, tensor| {
        values.push((
            NamedParam { name: name.to_owned(), shape, trainable: is_trainable(name) },
            tensor,
        ));
    });
    values
}

/// Returns all trainable parameters as one flat tensor `[count]`, without gradients.
pub fn flatten<M: Module>(model: &M) -> Tensor<1> {
    let trainable = named_tensors(model).into_iter().filter(|(param, _)| param.trainable);
    Tensor::cat(trainable.map(|(_, tensor)| tensor).collect(), 0)
}

/// Returns the flat gradient of every trainable parameter, in the order of [`named_params`].
///
/// The gradient is zero if the loss does not depend on a parameter.
pub fn gradients<M: Module>(model: &M, gradients: &mut Gradients) -> Vec<Tensor<1>> {
    struct Collect<'a> {
        path: Path,
        gradients: &'a mut Gradients,
        found: Vec<Tensor<1>>,
    }
    impl ModuleVisitor for Collect<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
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

/// Replaces the trainable parameters by the values of `flat`, in the order of [`flatten`].
///
/// # Panics
/// Panics if the length of `flat` is not [`count`].
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
    assert_eq!(start, flat.dims()[0], "the flat tensor does not match the model");
    model
}

/// Returns a model with the same values whose parameters are other leaves of the autodiff graph.
///
/// Forward and backward passes of the two models can run concurrently.
pub fn fork<M: Module>(model: &M) -> M {
    struct Fork;
    impl ModuleMapper for Fork {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|old| {
                if !old.is_autodiff() {
                    return old;
                }
                let tracked = old.is_require_grad();
                let new = Tensor::from_inner(old.inner());
                if tracked { new.require_grad() } else { new }
            })
        }
    }
    model.clone().map(&mut Fork)
}

/// Updates the running statistics to `(1 - rate) old + rate new`.
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

/// Replaces all parameters and buffers by the tensors that `find` returns for their names.
///
/// # Errors
/// Returns an error for the first tensor that is missing or has the wrong shape.
pub fn load<M: Module>(
    model: M,
    mut find: impl FnMut(&str) -> Option<TensorData>,
) -> Result<M, LoadError> {
    let mut error = None;
    let model = replace(model, |name, shape| {
        let found = find(name);
        match &found {
            Some(data) if data.shape() == shape => {
                let values: Vec<f64> = data.iter::<f64>().collect(); // exact for f32 and f64
                let data = TensorData::new(values, [shape.num_elements()]);
                Some(Tensor::from_data(data, (&Device::flex(), DType::F64)))
            }
            _ => {
                error.get_or_insert(LoadError {
                    name: name.to_owned(),
                    expected: shape.to_vec(),
                    found: found.map(|data| data.shape().to_vec()),
                });
                None
            }
        }
    });
    match error {
        Some(error) => Err(error),
        None => Ok(model),
    }
}

/// Checks that `find` returns the shape of every parameter and buffer of a model, which may have
/// [shapes only](crate::nn::ParamInit::shapes_only).
///
/// # Errors
/// Returns an error for the first tensor that is missing or has the wrong shape.
pub fn check_shapes<M: Module>(
    model: &M,
    find: impl Fn(&str) -> Option<Vec<usize>>,
) -> Result<(), LoadError> {
    for NamedParam { name, shape: expected, .. } in named_params(model) {
        let found = find(&name);
        if found.as_ref() != Some(&expected) {
            return Err(LoadError { name, expected, found });
        }
    }
    Ok(())
}

/// Error returned by [`load`] if the tensors do not match the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", match found {
    Some(found) => format!(
        "shape mismatch for tensor `{name}`: expected {expected:?}, found {found:?}"
    ),
    None => format!("missing tensor `{name}` of shape {expected:?}"),
})]
pub struct LoadError {
    /// Name of the tensor.
    pub name: String,
    /// Shape of the tensor in the model.
    pub expected: Vec<usize>,
    /// Shape of the tensor found, if any.
    pub found: Option<Vec<usize>>,
}

fn is_trainable(name: &str) -> bool {
    !name.rsplit('.').next().is_some_and(|field| field.starts_with("running_"))
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let count = tensor.shape().num_elements();
    tensor.reshape([count])
}

/// Path of the module fields that a visitor has entered.
#[derive(Debug, Default)]
struct Path(Vec<String>);

impl Path {
    fn enter(&mut self, name: &str, container: &str) {
        // The variant of an enum is a choice of the configuration, not part of the name.
        self.0.push(if container.starts_with("Enum:") { String::new() } else { name.to_owned() });
    }

    fn exit(&mut self) {
        self.0.pop();
    }

    fn name(&self) -> String {
        let names = self.0.iter().filter(|name| !name.is_empty());
        names.map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// Calls `visit` with the name, shape and flat inner tensor of every parameter and buffer.
fn visit_tensors<M: Module>(model: &M, visit: impl FnMut(&str, Vec<usize>, Tensor<1>)) {
    struct Visit<F>(Path, F);
    impl<F: FnMut(&str, Vec<usize>, Tensor<1>)> ModuleVisitor for Visit<F> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
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
    model.visit(&mut Visit(Path::default(), visit));
}

/// Replaces each parameter or buffer for which `find` returns a flat tensor.
fn replace<M: Module>(model: M, find: impl FnMut(&str, &Shape) -> Option<Tensor<1>>) -> M {
    struct Replace<F>(Path, F);
    impl<F: FnMut(&str, &Shape) -> Option<Tensor<1>>> ModuleMapper for Replace<F> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
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
