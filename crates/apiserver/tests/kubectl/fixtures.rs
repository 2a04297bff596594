//! The manifests that the tests apply.

pub(crate) const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Note, type: string, jsonPath: .spec.note, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        description: A widget is a thing to test with.
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, description: How big it is.}
              note: {type: string, default: none}
          status:
            type: object
            properties:
              phase: {type: string}
              conditions:
                type: array
                items:
                  type: object
                  required: [type, status]
                  properties:
                    type: {type: string}
                    status: {type: string}
"#;

pub(crate) const WIDGET: &str = r#"
apiVersion: example.com/v1
kind: Widget
metadata: {name: one, namespace: default}
spec: {size: 3}
"#;

pub(crate) const CONFIG: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {a: "1", b: "2"}
"#;

pub(crate) const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: main
        image: example.com/web:1
        env: [{name: A, value: "1"}]
        ports: [{containerPort: 8000}]
"#;

pub(crate) const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: worker, namespace: default, labels: {app: web}}
spec:
  containers:
  - name: main
    image: example.com/web:1
"#;

pub(crate) const SERVICE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8000}]
"#;
