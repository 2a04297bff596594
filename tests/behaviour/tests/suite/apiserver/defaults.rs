//! Built-in kinds: what is filled in, and what is refused.

#[tokio::test]
async fn built_in_kinds_are_filled_in_and_checked() {
    super::cases::run(include_str!("cases/defaults.json")).await;
}

#[tokio::test]
async fn jobs_are_filled_in_and_checked() {
    super::cases::run(include_str!("cases/jobs.json")).await;
}
