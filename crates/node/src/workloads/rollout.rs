//! The arithmetic of a rollout, by the rules of Kubernetes' deployment controller: how many pods each
//! ReplicaSet may have next, so that never too many exist and never too few are available.

use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::util::intstr::IntOrString};

/// How far the number of pods may differ from the wanted one during a rolling update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) surge: i32,
    pub(super) unavailable: i32,
}

/// A ReplicaSet as the arithmetic sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// How many pods it should have.
    pub(super) replicas: i32,
    /// How many of them are available.
    pub(super) available: i32,
}

/// The wanted number of pods.
pub(super) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.replicas.unwrap_or(1)
}

/// Whether all old pods must end before the first new one.
pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.strategy.as_ref();
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// The limits of a Deployment: percentages of the wanted number, surge rounded up, unavailable down. Both
/// zero would never move, so one pod may then be unavailable.
pub(super) fn limits(deployment: &Deployment) -> Limits {
    if is_recreate(deployment) {
        return Limits {
            surge: 0,
            unavailable: 0,
        };
    }
    let replicas = wanted(deployment);
    let rolling = deployment
        .spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.rolling_update.as_ref());
    let default = IntOrString::String("25%".to_owned());
    let surge = rolling
        .and_then(|rolling| rolling.max_surge.as_ref())
        .unwrap_or(&default);
    let unavailable = rolling
        .and_then(|rolling| rolling.max_unavailable.as_ref())
        .unwrap_or(&default);
    let (surge, unavailable) = (share(surge, replicas, true), share(unavailable, replicas, false));
    let unavailable = if surge == 0 && unavailable == 0 {
        1
    } else {
        unavailable
    };
    Limits {
        surge,
        unavailable: unavailable.min(replicas),
    }
}

fn share(value: &IntOrString, of: i32, up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = i64::from(of) * percent.max(0);
            let share = if up { (product + 99) / 100 } else { product / 100 };
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

/// How many pods the new ReplicaSet should have next; `total` counts those of all ReplicaSets, it included.
pub(super) fn new_size(wanted: i32, limits: Limits, total: i32, new: i32) -> i32 {
    if new >= wanted {
        return wanted;
    }
    let room = wanted + limits.surge - total;
    if room <= 0 {
        new
    } else {
        new + room.min(wanted - new)
    }
}

/// How many pods each old ReplicaSet, oldest first, should keep: first those that are not available go, then
/// as many as the available ones beyond the minimum allow.
pub(super) fn old_sizes(wanted: i32, limits: Limits, new: Size, old: &[Size]) -> Vec<i32> {
    let mut sizes: Vec<i32> = old.iter().map(|old| old.replicas).collect();
    let minimum = wanted - limits.unavailable;
    let total: i32 = new.replicas + sizes.iter().sum::<i32>();
    let mut may_go = total - minimum - (new.replicas - new.available);
    if may_go <= 0 {
        return sizes;
    }
    for (size, old) in sizes.iter_mut().zip(old) {
        let gone = (old.replicas - old.available).clamp(0, may_go);
        *size -= gone;
        may_go -= gone;
    }
    let available = new.available + old.iter().map(|old| old.available).sum::<i32>();
    let mut may_go = available - minimum;
    for size in &mut sizes {
        let gone = (*size).min(may_go.max(0));
        *size -= gone;
        may_go -= gone;
    }
    sizes
}

/// One of several ReplicaSets whose Deployment was scaled amid a rollout.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) replicas: i32,
    /// The largest number of pods the Deployment was allowed when this ReplicaSet was last scaled.
    pub(super) max_before: i32,
}

/// The sizes after scaling in proportion. `shares` are the ones with pods, newest first.
pub(super) fn proportional(wanted: i32, limits: Limits, shares: &[Share]) -> Vec<i32> {
    let total: i32 = shares.iter().map(|share| share.replicas).sum();
    let allowed = if wanted > 0 { wanted + limits.surge } else { 0 };
    let to_add = allowed - total;
    // The largest first; among equals the newest when growing, the oldest when shrinking.
    let mut order: Vec<usize> = (0..shares.len()).collect();
    if to_add < 0 {
        order.reverse();
    }
    order.sort_by_key(|index| std::cmp::Reverse(shares[*index].replicas));
    let mut sizes: Vec<i32> = shares.iter().map(|share| share.replicas).collect();
    let mut added = 0;
    for &index in &order {
        let share = shares[index];
        if share.replicas == 0 || to_add == added {
            continue;
        }
        let fraction = fraction(wanted, limits, share);
        let left = to_add - added;
        let part = if to_add > 0 {
            fraction.min(left)
        } else {
            fraction.max(left)
        };
        sizes[index] += part;
        added += part;
    }
    if let Some(&largest) = order.first() {
        sizes[largest] = (sizes[largest] + to_add - added).max(0);
    }
    sizes
}

fn fraction(wanted: i32, limits: Limits, share: Share) -> i32 {
    if wanted == 0 {
        return -share.replicas;
    }
    let after =
        f64::from(share.replicas) * f64::from(wanted + limits.surge) / f64::from(share.max_before.max(1));
    // Both factors are counts of pods; the result fits.
    after.round() as i32 - share.replicas
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i32, rolling: serde_json::Value) -> Deployment {
        serde_json::from_value(
            json!({ "spec": { "replicas": replicas, "selector": {}, "template": {},
            "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } } }),
        )
        .unwrap()
    }

    #[test]
    fn limits_round_surge_up_and_unavailable_down() {
        for (replicas, rolling, surge, unavailable) in [
            (1, json!({}), 1, 0),
            (10, json!({}), 3, 2),
            (3, json!({ "maxSurge": 0, "maxUnavailable": 0 }), 0, 1),
            (3, json!({ "maxSurge": 0, "maxUnavailable": "10%" }), 0, 1),
            (2, json!({ "maxSurge": 5, "maxUnavailable": 7 }), 5, 2),
            (0, json!({}), 0, 0),
        ] {
            let found = limits(&deployment(replicas, rolling.clone()));
            assert_eq!(
                found,
                Limits {
                    surge,
                    unavailable: if replicas == 0 { 0 } else { unavailable }
                },
                "{replicas} {rolling}"
            );
        }
    }

    #[test]
    fn a_broken_version_leaves_the_old_pods() {
        let limits = Limits {
            surge: 1,
            unavailable: 0,
        };
        let broken = Size {
            replicas: 1,
            available: 0,
        };
        assert_eq!(
            old_sizes(
                3,
                limits,
                broken,
                &[Size {
                    replicas: 3,
                    available: 3
                }]
            ),
            [3]
        );
        // Old pods that do not work either may go, the working ones stay.
        let limits = Limits {
            surge: 1,
            unavailable: 1,
        };
        assert_eq!(
            old_sizes(
                3,
                limits,
                broken,
                &[Size {
                    replicas: 3,
                    available: 2
                }]
            ),
            [2]
        );
    }

    #[test]
    fn scaling_amid_a_rollout_keeps_the_proportion() {
        let limits = Limits {
            surge: 3,
            unavailable: 2,
        };
        // Kubernetes' documented example: 10 to 15 with 8 old and 5 new pods becomes 11 and 7.
        let shares = [
            Share {
                replicas: 5,
                max_before: 13,
            },
            Share {
                replicas: 8,
                max_before: 13,
            },
        ];
        assert_eq!(proportional(15, limits, &shares), [7, 11]);
        assert_eq!(proportional(0, limits, &shares), [0, 0]);
    }

    proptest! {
        /// Simulates a rollout whose new pods all become available: it ends, and on the way never more pods
        /// exist nor fewer are available than allowed.
        #[test]
        fn a_rollout_ends_within_its_limits(wanted in 1i32..20, surge in 0i32..6, unavailable in 0i32..6) {
            let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable }.min(wanted);
            let limits = Limits { surge, unavailable };
            let mut old = Size { replicas: wanted, available: wanted };
            let mut new = Size { replicas: 0, available: 0 };
            for _ in 0..200 {
                let grown = new_size(wanted, limits, old.replicas + new.replicas, new.replicas);
                if grown != new.replicas {
                    new.replicas = grown;
                } else {
                    let size = old_sizes(wanted, limits, new, &[old])[0];
                    old = Size { replicas: size, available: old.available.min(size) };
                }
                prop_assert!(old.replicas + new.replicas <= wanted + surge);
                prop_assert!(old.available + new.available >= wanted - unavailable);
                if new.available < new.replicas {
                    new.available += 1;
                }
            }
            prop_assert_eq!((old.replicas, new.replicas), (0, wanted));
        }

        #[test]
        fn proportions_add_up(wanted in 0i32..30, surge in 0i32..5, sizes in prop::collection::vec(1i32..10, 1..4)) {
            let limits = Limits { surge, unavailable: 0 };
            let total: i32 = sizes.iter().sum();
            let shares: Vec<_> = sizes.iter().map(|replicas| Share { replicas: *replicas, max_before: total }).collect();
            let after = proportional(wanted, limits, &shares);
            prop_assert!(after.iter().all(|size| *size >= 0));
            prop_assert_eq!(after.iter().sum::<i32>(), if wanted > 0 { wanted + surge } else { 0 });
        }
    }
}
