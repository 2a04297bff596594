//! The four kinds of patch, and who owns which field.
