//! libFuzzer looks for bytes on which the core and `serde_json` differ, or on which anything panics.
//!
//! `fuzz/run [libFuzzer's options]`, on any toolchain that can instrument.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(difference) = countermand_sim::fuzz::compare(bytes) {
        panic!("{difference}: {:?}", String::from_utf8_lossy(bytes));
    }
});
