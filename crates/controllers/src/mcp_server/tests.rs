//! Manifests in, objects out.
