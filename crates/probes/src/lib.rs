//! Delay probes, CPU accountant and stack sampler.
