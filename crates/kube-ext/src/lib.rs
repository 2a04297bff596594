//! crates/kube-ext
