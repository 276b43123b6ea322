//! Routes and rules that do not change, ready for programs that only look up: what the C library and
//! the Python package are made of. Packets and their headers are the caller's.

use std::path::Path;

use acl::{Action, Address, Classifier, Key4, Key6, NONE, Rule};
use datapath::{Classify, ErrorClass};
use lpm::{Fib4, Fib6, Layout4, Layout6, Simd};

use crate::image::{self, ImageFile};
use crate::routes::Target;
use crate::rules::{Origin, RuleSet};
use crate::{Error, routes, rules};

/// Both families' tables. Any number of threads may look up.
#[derive(Debug)]
pub struct Library {
    fib4: Fib4,
    fib6: Fib6,
    hops4: Vec<String>,
    hops6: Vec<String>,
    list4: List<u32>,
    list6: List<u128>,
    origins: Vec<Origin>,
}

/// Why there is no library.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Input(#[from] Error),
    #[error("routes: {0}")]
    Routes(#[from] lpm::Error),
    #[error("rules: {0}")]
    Rules(#[from] acl::Error),
    #[error(transparent)]
    Image(#[from] image::Error),
}

impl OpenError {
    /// Whether it is the file's fault, as against the machine's.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Input(_) => true,
            Self::Image(error) => error.class() == ErrorClass::Input,
            Self::Routes(_) | Self::Rules(_) => false,
        }
    }
}

/// What a rule says of packets whose first match it is, and where it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub action: Action,
    /// The rule as its file has it; empty for no rule.
    pub text: String,
}

#[derive(Debug)]
struct List<A: Address> {
    classifier: Classifier<A>,
    /// The action and the origin of each rule.
    rules: Vec<(Action, u32)>,
}

impl Library {
    /// Reads a list of routes and a set of rules, of any format that is known by its content; without
    /// one of them its lookups find nothing.
    ///
    /// # Errors
    /// What cannot be read, with its line, or is too much.
    pub fn open(routes: Option<&Path>, rules: Option<&Path>) -> Result<Self, OpenError> {
        let routes = routes.map(|path| routes::open(path, &routes::Options::default()));
        let routes = routes
            .transpose()?
            .map(|read| read.routes)
            .unwrap_or_default();
        let rules = rules.map(|path| rules::open(path, &rules::Options::default()));
        let rules: RuleSet = rules.transpose()?.unwrap_or_default();
        let (v4, v6) = (routes.numbered4()?, routes.numbered6()?);
        let texts = |targets: &[u32]| {
            let target = |at: &u32| routes.targets[*at as usize].to_string();
            targets.iter().map(target).collect()
        };
        Ok(Self {
            hops4: texts(&v4.targets),
            hops6: texts(&v6.targets),
            fib4: Fib4::build(v4.rib, Layout4::Mixed)?.with_simd(Fib4::usual_simd()),
            fib6: Fib6::build(v6.rib, Layout6::Paged)?.with_simd(Simd::widest()),
            list4: List::build(&rules.v4)?,
            list6: List::build(&rules.v6)?,
            origins: rules.origins,
        })
    }

    /// Takes routes and rules from a table image that `lowroad router build` made; without one of them its
    /// lookups find nothing.
    ///
    /// # Errors
    /// A file that is no image, one of another version, one that is not as it was written.
    pub fn open_image(path: &Path) -> Result<Self, OpenError> {
        let image = ImageFile::open(path)?;
        let rules = image.rules()?.unwrap_or_default();
        let texts = |targets: &[Target]| targets.iter().map(Target::to_string).collect();
        let (fib4, fib6, hops4, hops6) = match image.routes()? {
            Some(routes) => (
                image.fib4(routes.v4, Layout4::Mixed)?,
                image.fib6(routes.v6, Layout6::Paged)?,
                texts(&routes.hops4),
                texts(&routes.hops6),
            ),
            None => (
                Fib4::new(Layout4::Mixed)?,
                Fib6::new(Layout6::Paged)?,
                Vec::new(),
                Vec::new(),
            ),
        };
        Ok(Self {
            fib4: fib4.with_simd(Fib4::usual_simd()),
            fib6: fib6.with_simd(Simd::widest()),
            hops4,
            hops6,
            list4: List::build(&rules.v4)?,
            list6: List::build(&rules.v6)?,
            origins: rules.origins,
        })
    }

    /// Writes the number of each IPv4 address's next hop, 0 for no route. Addresses are in network order.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn lookup4(&self, addresses: &[[u8; 4]], hops: &mut [u16]) {
        self.fib4.lookup_batch_be(addresses, hops);
    }

    /// As `lookup4`.
    ///
    /// # Panics
    /// As `lookup4`.
    pub fn lookup6(&self, addresses: &[[u8; 16]], hops: &mut [u16]) {
        self.fib6.lookup_batch(addresses, hops);
    }

    /// What IPv4 next hops 1, 2, ... stand for.
    pub fn hops4(&self) -> &[String] {
        &self.hops4
    }

    /// What IPv6 next hops 1, 2, ... stand for.
    pub fn hops6(&self) -> &[String] {
        &self.hops6
    }

    /// Writes the number of each key's first matching rule, [`NONE`] for none.
    ///
    /// # Panics
    /// When the slices differ in length.
    pub fn classify4(&self, keys: &[Key4], found: &mut [u32]) {
        self.list4.classifier.classify(keys, found);
    }

    /// As `classify4`.
    ///
    /// # Panics
    /// As `classify4`.
    pub fn classify6(&self, keys: &[Key6], found: &mut [u32]) {
        self.list6.classifier.classify(keys, found);
    }

    /// What an IPv4 rule says; what no rule matches is accepted. `None` for a number beyond the rules.
    pub fn verdict4(&self, rule: u32) -> Option<Verdict> {
        self.verdict(&self.list4.rules, rule)
    }

    /// What an IPv6 rule says; as `verdict4`.
    pub fn verdict6(&self, rule: u32) -> Option<Verdict> {
        self.verdict(&self.list6.rules, rule)
    }

    /// IPv4 and IPv6 routes.
    pub fn routes(&self) -> (usize, usize) {
        (self.fib4.rib().len(), self.fib6.rib().len())
    }

    /// Rules of each family.
    pub fn rules(&self) -> (usize, usize) {
        (self.list4.rules.len(), self.list6.rules.len())
    }

    fn verdict(&self, rules: &[(Action, u32)], rule: u32) -> Option<Verdict> {
        if rule == NONE {
            let (action, text) = (Action::Accept, String::new());
            return Some(Verdict { action, text });
        }
        let &(action, origin) = rules.get(rule as usize)?;
        let origin = self.origins.get(origin as usize);
        let text = origin.map_or(String::new(), |origin| origin.text.to_string());
        Some(Verdict { action, text })
    }
}

impl<A: Address> List<A> {
    fn build(rules: &[Rule<A>]) -> Result<Self, acl::Error> {
        Ok(Self {
            classifier: Classifier::build(rules, acl::Options::default())?,
            rules: rules.iter().map(|rule| (rule.action, rule.id)).collect(),
        })
    }
}
