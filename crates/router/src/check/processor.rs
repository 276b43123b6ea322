//! What any engine's processor decides, against the naive ones: of devices too, in batches as packets come.

use acl::{Action, Key, Rule, linear};
use lpm::{NO_ROUTE, Rib};

use super::routes::{self, Step};
use super::rules::{self, Keys};
use super::{CheckResult, compare};
use crate::engine::{Answers, Contents, Decision, Function, Headers, Processor};
use crate::explain;
use crate::random::Random;

/// Keys that are decided about together.
const BATCH: usize = 1 << 14;

/// Checks decisions at the bounds of all prefixes, or of rules where the processor filters, and about keys
/// anywhere, of a processor of tables that have these contents.
///
/// # Errors
/// A device that is lost or has no room.
pub fn processor<P: Processor>(
    processor: &mut P,
    name: &str,
    contents: &Contents,
    keys: Keys,
    seed: u64,
) -> Result<Vec<CheckResult>, P::Error> {
    let (v4, v6) = (
        Tables {
            rib: &contents.v4,
            rules: &contents.rules.v4,
            anywhere: Random::narrow,
        },
        Tables {
            rib: &contents.v6,
            rules: &contents.rules.v6,
            anywhere: Random::wide,
        },
    );
    let mut checked = Vec::new();
    let function = processor.function();
    if let Some(queries) = v4.queries(function, keys, seed) {
        let name = format!("{name} {function} IPv4");
        let decided = decide(processor, &queries.keys, Headers::push_key4, |all| &all.v4)?;
        checked.push(queries.compare(name, &decided));
    }
    if let Some(queries) = v6.queries(function, keys, seed) {
        let name = format!("{name} {function} IPv6");
        let decided = decide(processor, &queries.keys, Headers::push_key6, |all| &all.v6)?;
        checked.push(queries.compare(name, &decided));
    }
    Ok(checked)
}

/// Of one family.
struct Tables<'a, A: acl::Address> {
    rib: &'a Rib<A>,
    rules: &'a [Rule<A>],
    anywhere: fn(&mut Random) -> A,
}

/// Keys, and what is right.
struct Queries<A: acl::Address> {
    keys: Vec<Key<A>>,
    right: Vec<Decision>,
}

impl<A: acl::Address + Step> Tables<'_, A> {
    /// None where this family has nothing that decides.
    fn queries(&self, function: Function, keys: Keys, seed: u64) -> Option<Queries<A>> {
        let routed = function.routes() && !self.rib.is_empty();
        let filtered = function.filters() && !self.rules.is_empty();
        let keys = match (filtered, routed) {
            (true, _) => rules::queries(self.rules, keys, seed),
            (false, true) => {
                let addresses = routes::bounds(self.rib, seed, self.anywhere);
                let key = |to| Key::new(A::ZERO, to, (0, 0), 0);
                addresses.into_iter().map(key).collect()
            }
            (false, false) => return None,
        };
        let hops = match function.routes() {
            true => routes::hops(self.rib, keys.iter().map(Key::destination)),
            false => vec![NO_ROUTE; keys.len()],
        };
        let decision = |(key, hop): (&Key<A>, u16)| {
            let found = function
                .filters()
                .then(|| linear(self.rules, key))
                .flatten();
            // What no rule matches is accepted.
            let action = found.map_or(Action::Accept, |at| self.rules[at].action);
            match function {
                Function::Acl => Decision::filtered(action),
                Function::Lpm | Function::Both => Decision::combine(action, hop),
            }
        };
        let right = keys.iter().zip(hops).map(decision).collect();
        Some(Queries { keys, right })
    }
}

impl<A: acl::Address> Queries<A> {
    fn compare(&self, name: String, decided: &[Decision]) -> CheckResult {
        let show = |decision: Decision| match decision.hop() {
            NO_ROUTE => format!("{:?}", decision.verdict()),
            hop => format!("{:?}, next hop {hop}", decision.verdict()),
        };
        compare(
            name,
            &self.keys,
            decided,
            &self.right,
            explain::key_text,
            show,
        )
    }
}

fn decide<P: Processor, A: acl::Address>(
    processor: &mut P,
    keys: &[Key<A>],
    push: fn(&mut Headers, Key<A>),
    of_family: fn(&Answers) -> &[Decision],
) -> Result<Vec<Decision>, P::Error> {
    let mut headers = Headers::new(processor.function(), BATCH);
    let (mut answers, mut decided) = (Answers::default(), Vec::with_capacity(keys.len()));
    for batch in keys.chunks(BATCH) {
        headers.clear();
        batch.iter().for_each(|key| push(&mut headers, *key));
        processor.process_batch(&headers, &mut answers)?;
        decided.extend_from_slice(of_family(&answers));
    }
    Ok(decided)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use acl::generate::{Kind, rules as made};

    use super::*;
    use crate::cpu::{self, Tables as CpuTables};
    use crate::engine::Engine;
    use crate::rules::RuleSet;

    /// The CPUs' tables, with another answer to every hundredth key of a batch.
    struct FaultyProcessor<P>(P);

    impl<P: Processor> Processor for FaultyProcessor<P> {
        type Error = P::Error;

        fn function(&self) -> Function {
            self.0.function()
        }

        fn process_batch(
            &mut self,
            headers: &Headers,
            answers: &mut Answers,
        ) -> Result<(), Self::Error> {
            self.0.process_batch(headers, answers)?;
            for family in [&mut answers.v4, &mut answers.v6] {
                for answer in family.iter_mut().step_by(100) {
                    *answer = Decision::combine(Action::Drop, 0x7ffe);
                }
            }
            Ok(())
        }
    }

    fn wrong<P: Processor<Error = Infallible>>(mut queries: P, contents: &Contents) -> Vec<bool> {
        let Ok(checked) = processor(&mut queries, "test", contents, Keys::Exactly(3000), 1);
        let all = checked.iter().map(|checked| checked.wrong > 0);
        assert!(checked.iter().all(|checked| checked.keys >= 3000));
        all.collect()
    }

    #[test]
    fn what_is_right_is_found_right_and_what_is_wrong_is_found() {
        let hop = |number: u16| lpm::NextHop::new(number).unwrap();
        let contents = Contents {
            v4: (1..50_u16)
                .map(|at| (format!("10.{at}.0.0/16").parse().unwrap(), hop(at)))
                .collect(),
            v6: (1..50_u16)
                .map(|at| (format!("2001:db8:{at}::/48").parse().unwrap(), hop(at)))
                .collect(),
            rules: RuleSet {
                v4: made(Kind::NestedAndRanges, 100, 1),
                v6: made(Kind::NestedAndRanges, 100, 1),
                ..RuleSet::default()
            },
        };
        let tables = CpuTables::setup(contents.clone(), &cpu::Options::default()).unwrap();
        for function in Function::ALL {
            let queries = || tables.processor(function).unwrap();
            assert_eq!(wrong(queries(), &contents), [false; 2], "{function}");
            assert_eq!(
                wrong(FaultyProcessor(queries()), &contents),
                [true; 2],
                "{function}"
            );
        }
    }
}
