//! Compiles the shim for UCX, where the feature asks for it.

fn main() {
    println!("cargo:rerun-if-changed=src/edge/ucx/shim.c");
    #[cfg(feature = "ucx")]
    {
        cc::Build::new().file("src/edge/ucx/shim.c").flag("-Wall").compile("multirail_ucx_shim");
        println!("cargo:rustc-link-lib=ucp");
        println!("cargo:rustc-link-lib=ucs");
    }
}
