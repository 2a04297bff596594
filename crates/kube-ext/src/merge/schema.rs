//! What merging must know of a pod spec: which lists are merged and by which keys, and which fields exclude one
//! another. Objects that are not named here are merged field by field, lists that are not named are replaced.
//!
//! The keys are the `patchMergeKey` and `patchStrategy` of `k8s.io/api/core/v1`; a test compares them with the
//! schemas that the embedded API server was given.

/// An object that is merged field by field.
#[derive(Debug)]
pub(super) struct Object {
    /// The fields that are more than plain.
    pub(super) fields: &'static [(&'static str, Field)],
    pub(super) one_of: OneOf,
}

/// A field that is more than plain.
#[derive(Debug)]
pub(super) enum Field {
    Object(&'static Object),
    /// A list of objects that are found by a key.
    List(&'static List),
    /// A list of scalars that holds each one once.
    Set,
}

/// A list whose items are merged one by one.
#[derive(Debug)]
pub(super) struct List {
    pub(super) key: &'static str,
    /// What tells items apart that have the same key, and what it is where it is not given.
    pub(super) also: Option<(&'static str, Option<&'static str>)>,
    pub(super) item: &'static Object,
}

/// Fields of an object of which only one may be set.
#[derive(Debug)]
pub(super) enum OneOf {
    None,
    Members(&'static [&'static str]),
    /// All fields but this one: a kind of volume that is new is one of them.
    AllBut(&'static str),
}

impl Object {
    pub(super) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, field)| field)
    }
}

impl OneOf {
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::None => false,
            Self::Members(members) => members.contains(&name),
            Self::AllBut(other) => name != *other,
        }
    }
}

const fn by(key: &'static str, item: &'static Object) -> List {
    List {
        key,
        also: None,
        item,
    }
}

pub(super) static PLAIN: Object = Object {
    fields: &[],
    one_of: OneOf::None,
};

pub(super) static POD_SPEC: Object = Object {
    fields: &[
        ("containers", Field::List(&CONTAINERS)),
        ("initContainers", Field::List(&CONTAINERS)),
        ("ephemeralContainers", Field::List(&CONTAINERS)),
        ("volumes", Field::List(&VOLUMES)),
        ("imagePullSecrets", Field::List(&NAMED)),
        ("schedulingGates", Field::List(&NAMED)),
        ("resourceClaims", Field::List(&RESOURCE_CLAIMS)),
        ("hostAliases", Field::List(&HOST_ALIASES)),
        (
            "topologySpreadConstraints",
            Field::List(&TOPOLOGY_SPREAD_CONSTRAINTS),
        ),
    ],
    one_of: OneOf::None,
};

static NAMED: List = by("name", &PLAIN);
static HOST_ALIASES: List = by("ip", &PLAIN);
static CONTAINERS: List = by("name", &CONTAINER);
static VOLUMES: List = by("name", &VOLUME);
static RESOURCE_CLAIMS: List = by("name", &RESOURCE_CLAIM);
static ENV: List = by("name", &ENV_VAR);
static VOLUME_MOUNTS: List = by("mountPath", &PLAIN);
static VOLUME_DEVICES: List = by("devicePath", &PLAIN);
static OWNER_REFERENCES: List = by("uid", &PLAIN);

static PORTS: List = List {
    key: "containerPort",
    also: Some(("protocol", Some("TCP"))),
    item: &PLAIN,
};

static TOPOLOGY_SPREAD_CONSTRAINTS: List = List {
    key: "topologyKey",
    also: Some(("whenUnsatisfiable", None)),
    item: &PLAIN,
};

pub(super) static CONTAINER: Object = Object {
    fields: &[
        ("env", Field::List(&ENV)),
        ("ports", Field::List(&PORTS)),
        ("volumeMounts", Field::List(&VOLUME_MOUNTS)),
        ("volumeDevices", Field::List(&VOLUME_DEVICES)),
        ("livenessProbe", Field::Object(&PROBE)),
        ("readinessProbe", Field::Object(&PROBE)),
        ("startupProbe", Field::Object(&PROBE)),
        ("lifecycle", Field::Object(&LIFECYCLE)),
    ],
    one_of: OneOf::None,
};

static ENV_VAR: Object = Object {
    fields: &[("valueFrom", Field::Object(&ENV_VAR_SOURCE))],
    one_of: OneOf::Members(&["value", "valueFrom"]),
};

static ENV_VAR_SOURCE: Object = Object {
    fields: &[],
    one_of: OneOf::Members(&[
        "configMapKeyRef",
        "fieldRef",
        "fileKeyRef",
        "resourceFieldRef",
        "secretKeyRef",
    ]),
};

static PROBE: Object = Object {
    fields: &[],
    one_of: OneOf::Members(&["exec", "grpc", "httpGet", "tcpSocket"]),
};

static LIFECYCLE: Object = Object {
    fields: &[
        ("postStart", Field::Object(&LIFECYCLE_HANDLER)),
        ("preStop", Field::Object(&LIFECYCLE_HANDLER)),
    ],
    one_of: OneOf::None,
};

static LIFECYCLE_HANDLER: Object = Object {
    fields: &[],
    one_of: OneOf::Members(&["exec", "httpGet", "sleep", "tcpSocket"]),
};

static RESOURCE_CLAIM: Object = Object {
    fields: &[],
    one_of: OneOf::Members(&["resourceClaimName", "resourceClaimTemplateName"]),
};

static VOLUME: Object = Object {
    fields: &[("ephemeral", Field::Object(&EPHEMERAL))],
    one_of: OneOf::AllBut("name"),
};

static EPHEMERAL: Object = Object {
    fields: &[("volumeClaimTemplate", Field::Object(&VOLUME_CLAIM_TEMPLATE))],
    one_of: OneOf::None,
};

static VOLUME_CLAIM_TEMPLATE: Object = Object {
    fields: &[("metadata", Field::Object(&METADATA))],
    one_of: OneOf::None,
};

static METADATA: Object = Object {
    fields: &[
        ("finalizers", Field::Set),
        ("ownerReferences", Field::List(&OWNER_REFERENCES)),
    ],
    one_of: OneOf::None,
};
