//! Makes Rust of the protocol; protox is the compiler, so no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/hedgerow.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").build_transport(true).compile_fds(descriptors)?;
    Ok(())
}
