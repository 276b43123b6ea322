//! Names of functions by address: the kernel's and BPF programs' from kallsyms, a process's from
//! the files it has mapped.

use std::collections::HashMap;

use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};

pub(super) struct Symbols {
    symbolizer: Symbolizer,
    known: HashMap<(u32, u64), String>,
}

/// Stands for the kernel where names are kept by process: the idle task has no user stack.
const KERNEL: u32 = 0;

impl Symbols {
    pub(super) fn new() -> Self {
        Self {
            symbolizer: Symbolizer::new(),
            known: HashMap::new(),
        }
    }

    /// A kernel stack's functions, leaf first as the addresses are.
    pub(super) fn kernel(&mut self, addresses: &[u64]) -> Vec<String> {
        let source = Source::Kernel(Kernel {
            kallsyms: MaybeDefault::Default,
            // A kernel image that happens to lie about need not be the running one.
            vmlinux: MaybeDefault::None,
            kaslr_offset: None,
            debug_syms: false,
            _non_exhaustive: (),
        });
        self.names(KERNEL, &source, addresses, "[kernel]")
    }

    /// A user stack's functions, leaf first as the addresses are.
    pub(super) fn user(&mut self, tgid: u32, addresses: &[u64]) -> Vec<String> {
        let mut process = Process::new(Pid::from(tgid));
        // Functions are asked for, not lines: the symbol table has them, and is much faster.
        process.debug_syms = false;
        self.names(tgid, &Source::Process(process), addresses, "[unknown]")
    }

    fn names(
        &mut self,
        space: u32,
        source: &Source<'_>,
        addresses: &[u64],
        unknown: &str,
    ) -> Vec<String> {
        // A caller's address is that of the instruction after the call, which may be the next
        // function's first.
        let asked: Vec<u64> = addresses
            .iter()
            .enumerate()
            .map(|(depth, address)| address - u64::from(depth > 0))
            .collect();
        let new: Vec<u64> = asked
            .iter()
            .copied()
            .filter(|address| !self.known.contains_key(&(space, *address)))
            .collect();
        if !new.is_empty() {
            let found = self.symbolizer.symbolize(source, Input::AbsAddr(&new));
            let mut found = found.unwrap_or_default().into_iter();
            for address in new {
                let name = match found.next() {
                    Some(Symbolized::Sym(symbol)) => frame(&symbol.name),
                    _ => unknown.to_owned(),
                };
                self.known.insert((space, address), name);
            }
        }
        asked
            .iter()
            .filter_map(|address| self.known.get(&(space, *address)).cloned())
            .collect()
    }
}

/// A name as a frame: semicolons part frames, and a blank ends a stack.
pub(super) fn frame(name: &str) -> String {
    name.replace(';', ":").replace(char::is_whitespace, "_")
}
