//! Custom resources against their schemas: values, rules, unknown fields and defaults.

#[tokio::test]
async fn custom_resources_are_checked() {
    super::cases::run(include_str!("cases/schema.json")).await;
}
