//! The protocol's Rust code is checked in: building needs no generator.

use std::path::Path;

/// Set to write the file instead of comparing it.
const WRITE: &str = "HEDGEROW_WRITE_GENERATED";

#[test]
fn the_generated_code_is_that_of_the_protocol_file() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors =
        protox::compile(["hedgerow.proto"], [crate_folder.join("proto")]).expect("the protocol");
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .bytes(".")
        .build_transport(true)
        .out_dir(folder.path())
        .compile_fds(descriptors)
        .expect("the generator");
    let generated = std::fs::read_to_string(folder.path().join("hedgerow.v1.rs")).unwrap();
    let checked_in = crate_folder.join("src/transport/generated/hedgerow.v1.rs");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&checked_in, &generated).unwrap();
    }
    let found = std::fs::read_to_string(&checked_in).unwrap();
    assert!(
        found == generated,
        "{} is out of date: run this test with {WRITE}=1 to write it again",
        checked_in.display()
    );
}
