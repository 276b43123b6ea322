//! The integration tests of `report`: one program, one module for each subject.

mod agreement;
mod browser;
mod columns;
mod common;
mod crossing;
mod emulation;
mod netbench;
mod page;
mod pair;
mod results;
mod second_run;
mod upgrade;
