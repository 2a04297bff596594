//! Manifests in, objects out.

use kaos_api::{names::Kind, v1alpha1::MCPServer};

use super::{build, resolve, validate};
use crate::common::{
    status::Standing,
    testing::{config, owner, stored, yaml},
};

fn objects(spec: &str) -> Result<build::Objects, Standing> {
    let (config, server) = (config(), stored::<MCPServer>("calc", spec));
    let owner = owner(Kind::McpServer, "calc");
    let valid = validate::validate(&owner, &server, resolve::runtime(&server, &config))?;
    Ok(build::build(&valid, &config.log_level))
}

#[test]
fn python_functions() {
    let spec = r#"
runtime: python-string
params: |
  def cost(x: int) -> str:
      "Price of $(x)"
      return f"$${x}"
container:
  env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: keys, key: token}}}]
"#;
    insta::assert_snapshot!(yaml(&objects(spec).unwrap()));
}

#[test]
fn a_runtime_without_parameters() {
    insta::assert_snapshot!(yaml(&objects("runtime: plain").unwrap().deployment));
}

#[test]
fn what_cannot_be_built_is_said() {
    for (spec, reason, message) in [
        (
            "runtime: ruby",
            "UnknownRuntime",
            "unknown runtime: ruby (known: plain, python-string); change spec.runtime",
        ),
        (
            "{runtime: plain, params: x}",
            "InvalidSpec",
            "runtime plain takes no params; remove spec.params, or give what it needs in spec.container.env",
        ),
    ] {
        let standing = objects(spec).unwrap_err();
        assert_eq!((standing.reason, standing.message.as_str()), (reason, message));
    }
}
