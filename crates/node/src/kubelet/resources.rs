//! What a container asks for and may use, as the downward API tells it.

use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceFieldSelector},
    apimachinery::pkg::api::resource::Quantity,
};

use crate::scheduler::capacity;

/// Parts of one that a quantity can tell apart.
const NANOS: i128 = 1_000_000_000;

/// The value of a `resourceFieldRef`: how many of the divisor the resource is, rounded up. A limit that is not
/// set is what the machine has. `own` counts where the selector names no container.
pub(crate) fn value(
    pod: &Pod,
    own: Option<&Container>,
    selector: &ResourceFieldSelector,
) -> Result<String, String> {
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let spec = pod.spec.iter();
    let mut all = spec.flat_map(|spec| {
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
    });
    let container = match named {
        None => own.ok_or("containerName is missing")?,
        Some(name) => all
            .find(|container| container.name == name)
            .ok_or_else(|| format!("container {name} not found"))?,
    };
    let unknown = || format!("unsupported container resource: {}", selector.resource);
    let (list, resource) = selector.resource.split_once('.').ok_or_else(unknown)?;
    let resources = container.resources.clone().unwrap_or_default();
    let (limits, requests) = (
        resources.limits.unwrap_or_default(),
        resources.requests.unwrap_or_default(),
    );
    let known =
        matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    let found = match list {
        "limits" if known => limits
            .get(resource)
            .cloned()
            .or_else(|| capacity().get(resource).cloned()),
        "requests" if known => requests.get(resource).cloned(),
        _ => return Err(unknown()),
    };
    let amount = match found {
        Some(quantity) => nanos(&quantity)?,
        None => 0,
    };
    let divisor = match &selector.divisor {
        Some(divisor) => nanos(divisor)?,
        None => NANOS,
    };
    // A divisor of nothing is none.
    let divisor = if divisor <= 0 { NANOS } else { divisor };
    Ok(((amount + divisor - 1) / divisor).to_string())
}

/// A quantity in thousand millionths.
fn nanos(quantity: &Quantity) -> Result<i128, String> {
    let text = quantity.0.trim();
    let wrong = || format!("{text:?} is no quantity");
    let end = text
        .find(|character: char| !character.is_ascii_digit() && !matches!(character, '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    if !number.contains(|character: char| character.is_ascii_digit()) {
        return Err(wrong());
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let mantissa: i128 = format!("{whole}{digits}").parse().map_err(|_| wrong())?;
    let power = |base: i128, exponent: u32| base.checked_pow(exponent).ok_or_else(wrong);
    let scaled = match suffix {
        "" => Some(mantissa),
        "n" => Some(mantissa / NANOS),
        "u" => Some(mantissa / 1_000_000),
        "m" => Some(mantissa / 1_000),
        "k" => mantissa.checked_mul(1_000),
        "M" => mantissa.checked_mul(power(1_000, 2)?),
        "G" => mantissa.checked_mul(power(1_000, 3)?),
        "T" => mantissa.checked_mul(power(1_000, 4)?),
        "P" => mantissa.checked_mul(power(1_000, 5)?),
        "E" => mantissa.checked_mul(power(1_000, 6)?),
        "Ki" => mantissa.checked_mul(1_024),
        "Mi" => mantissa.checked_mul(power(1_024, 2)?),
        "Gi" => mantissa.checked_mul(power(1_024, 3)?),
        "Ti" => mantissa.checked_mul(power(1_024, 4)?),
        "Pi" => mantissa.checked_mul(power(1_024, 5)?),
        "Ei" => mantissa.checked_mul(power(1_024, 6)?),
        exponent => {
            let exponent: i32 = exponent
                .strip_prefix(['e', 'E'])
                .and_then(|exponent| exponent.parse().ok())
                .ok_or_else(wrong)?;
            let factor = power(10, exponent.unsigned_abs())?;
            if exponent < 0 {
                Some(mantissa / factor)
            } else {
                mantissa.checked_mul(factor)
            }
        }
    };
    scaled.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": [
            { "name": "c", "resources": { "limits": { "cpu": "1500m", "memory": "64Mi" }, "requests": { "cpu": "0.25" } } },
            { "name": "free" },
        ] } }))
        .unwrap();
        let own = pod.spec.as_ref().map(|spec| &spec.containers[0]);
        let found = |selector| value(&pod, own, &serde_json::from_value(selector).unwrap());
        for (selector, expected) in [
            (json!({ "resource": "limits.cpu" }), "2"),
            (json!({ "resource": "limits.cpu", "divisor": "1m" }), "1500"),
            (json!({ "resource": "requests.cpu" }), "1"),
            (json!({ "resource": "requests.cpu", "divisor": "1m" }), "250"),
            (json!({ "resource": "limits.memory" }), "67108864"),
            (json!({ "resource": "limits.memory", "divisor": "1Mi" }), "64"),
            (json!({ "resource": "limits.memory", "divisor": "1M" }), "68"),
            (json!({ "resource": "requests.memory" }), "0"),
            (json!({ "resource": "limits.memory", "divisor": "0" }), "67108864"),
        ] {
            assert_eq!(found(selector.clone()).unwrap(), expected, "{selector}");
        }
        let free = found(json!({ "containerName": "free", "resource": "limits.cpu" })).unwrap();
        assert!(free.parse::<u32>().unwrap() >= 1, "what the machine has: {free}");
        for (selector, message) in [
            (
                json!({ "resource": "limits.gpu" }),
                "unsupported container resource: limits.gpu",
            ),
            (
                json!({ "resource": "cpu" }),
                "unsupported container resource: cpu",
            ),
            (
                json!({ "containerName": "no", "resource": "limits.cpu" }),
                "container no not found",
            ),
            (
                json!({ "resource": "limits.cpu", "divisor": "x" }),
                "\"x\" is no quantity",
            ),
        ] {
            assert_eq!(found(selector).unwrap_err(), message);
        }
    }

    #[test]
    fn quantities_have_many_forms() {
        for (text, expected) in [
            ("1", NANOS),
            ("1e3", 1_000 * NANOS),
            ("5E-1", NANOS / 2),
            ("100m", NANOS / 10),
            ("1n", 1),
            ("1.5Gi", 1_610_612_736 * NANOS),
            ("2E", 2_000_000_000_000_000_000 * NANOS),
        ] {
            assert_eq!(nanos(&Quantity(text.to_owned())), Ok(expected), "{text}");
        }
        for text in ["", "x", "1x", "1.2.3", "1e99999", "--1", "1e"] {
            assert!(nanos(&Quantity(text.to_owned())).is_err(), "{text}");
        }
    }
}
