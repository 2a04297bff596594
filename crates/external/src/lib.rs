//! Kinds of other projects, as types.
//!
//! Each module belongs to one project. Its definitions lie as published in `crds`, and its types are generated
//! from them (`cargo xtask generate`), as is `definitions.json`, the same definitions in the form that is read
//! fastest: nothing here is edited by hand. The types hold no schema, so that they compile fast; who installs a
//! kind installs the definition as published.
//!
//! Enums have a variant `Unrecognized` for values of newer versions of a kind, so that an object is not lost
//! over one field. It is for reading: writing it back would write a value that no server knows.

pub mod gateway_api;
