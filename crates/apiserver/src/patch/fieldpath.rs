//! Paths of fields and sets of them, and their form in `metadata.managedFields` (`FieldsV1`).
//!
//! The model is that of structured-merge-diff: a set has members and, apart from them, children. A field and the
//! fields below it are owned independently of each other.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::{Map, Value};

/// One step from a container to what it holds.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A field of an object or an entry of a map.
    Field(String),
    /// An item of a list that is told apart by these fields, sorted by name.
    Key(Vec<(String, Value)>),
    /// An item of a set.
    Value(Value),
    /// An item of an atomic list. Only read, for entries that others wrote.
    Index(u64),
}

impl Step {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "v" => Self::Value(serde_json::from_str(rest).ok()?),
            "i" => Self::Index(rest.parse().ok()?),
            "k" => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                Self::Key(keys.into_iter().collect())
            }
            _ => return None,
        })
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
            Self::Key(keys) => format!("k:{}", Value::Object(keys.iter().cloned().collect())),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(keys) => {
                f.write_str("[")?;
                for (at, (name, value)) in keys.iter().enumerate() {
                    write!(f, "{}{name}={value}", if at == 0 { "" } else { "," })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Values of keys and sets, in order: numbers, texts, booleans, the rest. `1` and `1.0` are the same.
fn compare_values(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a
                .as_f64()
                .unwrap_or_default()
                .total_cmp(&b.as_f64().unwrap_or_default()),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
            a.to_string().cmp(&b.to_string())
        }
        _ => rank(a).cmp(&rank(b)),
    }
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let pairs = a
                    .iter()
                    .zip(b)
                    .map(|((a_name, a), (b_name, b))| a_name.cmp(b_name).then_with(|| compare_values(a, b)));
                pairs
                    .fold(Ordering::Equal, Ordering::then)
                    .then(a.len().cmp(&b.len()))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Step {}

/// A set of fields. No child is ever empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    pub(super) members: BTreeSet<Step>,
    pub(super) children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Adds the field at a path. The object itself cannot be owned.
    pub(super) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// The set of these paths of plain fields.
    pub(super) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let steps: Vec<Step> = path.iter().map(|name| Step::Field((*name).to_owned())).collect();
            set.insert(&steps);
        }
        set
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            let merged = union
                .children
                .get(step)
                .map_or_else(|| child.clone(), |own| own.union(child));
            union.children.insert(step.clone(), merged);
        }
        union
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let both = self
            .children
            .iter()
            .filter_map(|(step, child)| Some((step, child, other.children.get(step)?)));
        let children = both.map(|(step, child, other)| (step.clone(), child.intersection(other)));
        Self {
            members,
            children: children.filter(|(_, child)| !child.is_empty()).collect(),
        }
    }

    /// What is in this set and not in the other. Taking a field away leaves the fields below it.
    pub(super) fn difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self.children.iter().map(|(step, child)| {
            let left = other
                .children
                .get(step)
                .map_or_else(|| child.clone(), |other| child.difference(other));
            (step.clone(), left)
        });
        Self {
            members,
            children: children.filter(|(_, child)| !child.is_empty()).collect(),
        }
    }

    /// What is in this set, without the fields of the other and all that is below them.
    pub(super) fn without(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .filter(|(step, _)| !other.members.contains(step))
            .map(|(step, child)| {
                let left = other
                    .children
                    .get(step)
                    .map_or_else(|| child.clone(), |other| child.without(other));
                (step.clone(), left)
            });
        Self {
            members,
            children: children.filter(|(_, child)| !child.is_empty()).collect(),
        }
    }

    /// Every path, in order.
    pub(super) fn paths(&self) -> Vec<Vec<Step>> {
        let mut paths: Vec<Vec<Step>> = self.members.iter().map(|step| vec![step.clone()]).collect();
        for (step, child) in &self.children {
            paths.extend(child.paths().into_iter().map(|mut path| {
                path.insert(0, step.clone());
                path
            }));
        }
        paths
    }

    /// As `FieldsV1`.
    pub(super) fn encode(&self) -> Value {
        Value::Object(self.encode_below(false))
    }

    fn encode_below(&self, itself: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        if itself {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for step in self
            .members
            .iter()
            .chain(self.children.keys())
            .collect::<BTreeSet<_>>()
        {
            let below = match self.children.get(step) {
                Some(child) => child.encode_below(self.members.contains(step)),
                None => Map::new(),
            };
            fields.insert(step.encode(), Value::Object(below));
        }
        fields
    }

    /// From `FieldsV1`; nothing where it is not of that form.
    pub(super) fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (text, below) in fields.as_object()? {
            if text == "." {
                continue;
            }
            let step = Step::parse(text)?;
            let fields = below.as_object()?;
            if fields.is_empty() || fields.contains_key(".") {
                set.members.insert(step.clone());
            }
            let child = Self::decode(below)?;
            if !child.is_empty() {
                set.children.insert(step, child);
            }
        }
        Some(set)
    }
}

/// A path as conflicts show it, such as `.spec.ports[name="http"].port`.
pub(super) fn display(path: &[Step]) -> String {
    path.iter().map(ToString::to_string).collect()
}
