//! Which of the policies that run here a command means: a `weir run`, or a function of an edge.

use weir_engine::control::Client;
use weir_runtime::RuntimeError;

use crate::failure::Failure;

/// What the options of a command say.
pub(crate) struct Choice<'a> {
    /// An interface of a `weir run`.
    pub(crate) interface: Option<&'a str>,
    /// The edge.
    pub(crate) edge: Option<&'a str>,
    /// Its function.
    pub(crate) function: Option<&'a str>,
    /// What is said if no function of an edge has what is asked for.
    pub(crate) none: &'a str,
    /// What is said in front of those there are, if several have it.
    pub(crate) several: &'a str,
}

/// The one that is meant.
pub(crate) enum Chosen<T> {
    /// A `weir run`, which is asked.
    Run(Client),
    /// A function of an edge.
    Function(T),
}

impl Choice<'_> {
    /// The only one of this network namespace, unless more is said. `functions` lists those of an edge, or of all; `name` gives edge and function.
    pub(crate) fn find<T>(
        &self,
        functions: impl FnOnce(Option<&str>) -> Result<Vec<T>, RuntimeError>,
        name: impl Fn(&T) -> (&str, &str),
    ) -> Result<Chosen<T>, Failure> {
        if self.interface.is_some() {
            return Ok(Chosen::Run(Client::find(self.interface)?));
        }
        let asks_edge = self.edge.is_some() || self.function.is_some();
        let mut found = functions(self.edge)?;
        if let Some(wanted) = self.function {
            found.retain(|one| name(one).1 == wanted);
        }
        let mut runs = match asks_edge {
            true => Vec::new(),
            false => Client::all()?,
        };
        match (runs.len(), found.len()) {
            (1, 0) => Ok(Chosen::Run(runs.remove(0))),
            (0, 1) => Ok(Chosen::Function(found.remove(0))),
            (0, 0) if asks_edge => Err(Failure::Failed(self.none.to_owned())),
            // Says that nothing runs.
            (0, 0) => Ok(Chosen::Run(Client::find(None)?)),
            _ => {
                let runs = runs.iter().map(|client| {
                    let interfaces = client.hello().interfaces.join("+");
                    format!("-i {interfaces}")
                });
                let found = found.iter().map(|one| {
                    let (edge, function) = name(one);
                    format!("--edge {edge} --function {function}")
                });
                let all: Vec<String> = runs.chain(found).collect();
                let several = self.several;
                Err(Failure::Usage(format!(
                    "{several}; select one: {}",
                    all.join("; ")
                )))
            }
        }
    }
}
