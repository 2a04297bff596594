// Prints how kinds of the Kubernetes API are written in protobuf and in JSON: for each message the numbers of its
// fields, their names in JSON and their types, as the tags of the Go types say. With `cases` it prints objects
// that Kubernetes itself wrote in both forms.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

const usage = "usage: protobuf table|cases <apiVersion>/<kind>..."

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) < 2 {
		return errors.New(usage)
	}
	if err := apiextensions.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	var lines []string
	var err error
	switch args[0] {
	case "table":
		lines, err = table(args[1:])
	case "cases":
		lines, err = cases(args[1:])
	default:
		err = errors.New(usage)
	}
	if err != nil {
		return err
	}
	// One message or case a line: a change of the module shows as the lines it changes.
	_, err = fmt.Fprintf(out, "{\n%s\n}\n", strings.Join(lines, ",\n"))
	return err
}

func goType(name string) (reflect.Type, schema.GroupVersionKind, error) {
	at := strings.LastIndex(name, "/")
	if at < 0 {
		return nil, schema.GroupVersionKind{}, errors.New(usage)
	}
	kind := schema.FromAPIVersionAndKind(name[:at], name[at+1:])
	object, err := scheme.Scheme.New(kind)
	if err != nil {
		return nil, kind, err
	}
	return reflect.TypeOf(object).Elem(), kind, nil
}

// field is a line of the table: number, name in JSON, type, and how it is written.
type field [4]any

// tables are the messages by the name of their definition in OpenAPI.
type tables map[string][]field

func table(kinds []string) ([]string, error) {
	messages := tables{}
	for _, name := range kinds {
		kind, _, err := goType(name)
		if err != nil {
			return nil, err
		}
		if _, err := messages.add(kind); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	var lines []string
	for name, fields := range messages {
		text, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%q:%s", name, text))
	}
	slices.Sort(lines)
	return lines, nil
}

// add adds a message and all that it refers to.
func (t tables) add(message reflect.Type) (string, error) {
	named, ok := reflect.Zero(message).Interface().(interface{ OpenAPIModelName() string })
	if !ok {
		return "", fmt.Errorf("%s has no name in OpenAPI", message)
	}
	name := named.OpenAPIModelName()
	if _, done := t[name]; done {
		return name, nil
	}
	t[name] = []field{}
	fields := []field{}
	for i := range message.NumField() {
		each := message.Field(i)
		if each.Type == reflect.TypeFor[meta.TypeMeta]() {
			// It is in the envelope.
			continue
		}
		line, err := t.field(each)
		if err != nil {
			return "", fmt.Errorf("%s.%s: %w", message, each.Name, err)
		}
		fields = append(fields, line)
	}
	t[name] = fields
	return name, nil
}

func (t tables) field(each reflect.StructField) (field, error) {
	tag := strings.Split(each.Tag.Get("protobuf"), ",")
	if len(tag) < 2 {
		return field{}, errors.New("no protobuf tag")
	}
	number, err := strconv.Atoi(tag[1])
	if err != nil {
		return field{}, err
	}
	kind, err := t.typeOf(each.Type)
	if err != nil {
		return field{}, err
	}
	options := strings.Split(each.Tag.Get("json"), ",")
	name, options := options[0], options[1:]
	switch {
	case slices.Contains(options, "inline"):
		return field{number, "", kind, "inline"}, nil
	case name == "":
		// A choice is written by hand in JSON; its fields have names in protobuf only.
		for _, option := range tag {
			if found, ok := strings.CutPrefix(option, "name="); ok {
				name = found
			}
		}
	}
	return field{number, name, kind, presence(each.Type, options)}, nil
}

// presence says what encoding/json does with a zero value.
func presence(of reflect.Type, options []string) string {
	switch of.Kind() {
	case reflect.Pointer:
		// Zero is a value.
		return "pointer"
	case reflect.Slice, reflect.Map:
		return "filled"
	case reflect.Struct:
		if slices.Contains(options, "omitzero") {
			return "filled"
		}
		return "always"
	default:
		if slices.Contains(options, "omitempty") || slices.Contains(options, "omitzero") {
			return "filled"
		}
		return "always"
	}
}

// special are types that write their JSON by hand.
var special = map[reflect.Type]string{
	reflect.TypeFor[meta.Time]():            "time",
	reflect.TypeFor[meta.MicroTime]():       "microTime",
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "intOrString",
	reflect.TypeFor[runtime.RawExtension](): "json",
	reflect.TypeFor[meta.FieldsV1]():        "json",
	reflect.TypeFor[apiextensions.JSON]():   "json",
}

// choices are messages of which one field is the value.
var choices = []reflect.Type{
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrArray](),
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrBool](),
	reflect.TypeFor[apiextensions.JSONSchemaPropsOrStringArray](),
}

func (t tables) typeOf(of reflect.Type) (string, error) {
	if name, ok := special[of]; ok {
		return name, nil
	}
	if slices.Contains(choices, of) {
		name, err := t.add(of)
		return "choice " + name, err
	}
	if reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]()) && of != reflect.TypeFor[apiextensions.JSONSchemaProps]() {
		return "", fmt.Errorf("%s writes its JSON by hand", of)
	}
	switch of.Kind() {
	case reflect.Pointer:
		return t.typeOf(of.Elem())
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "bool", nil
	case reflect.Int32:
		return "int32", nil
	case reflect.Int64:
		return "int64", nil
	case reflect.Float64:
		return "double", nil
	case reflect.Struct:
		return t.add(of)
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "bytes", nil
		}
		items, err := t.typeOf(of.Elem())
		return "list " + items, err
	case reflect.Map:
		if of.Key().Kind() == reflect.String {
			values, err := t.typeOf(of.Elem())
			return "map " + values, err
		}
	}
	return "", fmt.Errorf("%s is not known here", of)
}

// cases are the objects that Kubernetes keeps to test its own compatibility: every field of them has a value.
func cases(args []string) ([]string, error) {
	if len(args) < 3 {
		return nil, errors.New("usage: protobuf cases <k8s.io/api> <k8s.io/apiextensions-apiserver> <apiVersion>/<kind>...")
	}
	folders := []string{
		filepath.Join(args[0], "testdata", "HEAD"),
		filepath.Join(args[1], "pkg", "apis", "testdata", "HEAD"),
	}
	var lines []string
	for _, name := range args[2:] {
		_, kind, err := goType(name)
		if err != nil {
			return nil, err
		}
		group := kind.Group
		if group == "" {
			group = "core"
		}
		file := fmt.Sprintf("%s.%s.%s", group, kind.Version, kind.Kind)
		written, err := read(folders, file+".json")
		if err != nil {
			return nil, err
		}
		var object any
		if err := json.Unmarshal(written, &object); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		binary, err := read(folders, file+".pb")
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(struct {
			JSON     any    `json:"json"`
			Protobuf []byte `json:"protobuf"`
		}{object, binary})
		if err != nil {
			return nil, err
		}
		lines = append(lines, fmt.Sprintf("%q:%s", name, text))
	}
	return lines, nil
}

func read(folders []string, file string) ([]byte, error) {
	var err error
	for _, folder := range folders {
		var content []byte
		if content, err = os.ReadFile(filepath.Join(folder, file)); err == nil {
			return content, nil
		}
	}
	return nil, err
}
