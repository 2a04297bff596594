// Reads the table of cases for merging pod specs and prints it with Kubernetes' own answer to each: `go`, or
// `go_error` where it refuses. What else a case has stays as it is.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// testCase is one case, in the order its fields are written.
type testCase struct {
	Name    string          `json:"name"`
	Base    json.RawMessage `json:"base"`
	Patch   json.RawMessage `json:"patch"`
	Go      json.RawMessage `json:"go,omitempty"`
	GoError string          `json:"go_error,omitempty"`
	Exact   bool            `json:"exact,omitempty"`
	Want    json.RawMessage `json:"want,omitempty"`
	Error   string          `json:"error,omitempty"`
	Why     string          `json:"why,omitempty"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: strategicmerge <table>")
	}
	in, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer in.Close()
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	var cases []testCase
	if err := decoder.Decode(&cases); err != nil {
		return fmt.Errorf("the table cannot be read: %w", err)
	}
	blocks := make([]string, 0, len(cases))
	for _, c := range cases {
		c.Go, c.GoError = nil, ""
		if merged, err := strategicpatch.StrategicMergePatch(c.Base, c.Patch, corev1.PodSpec{}); err != nil {
			c.GoError = firstLine(err)
		} else {
			c.Go = merged
		}
		block, err := c.block()
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		blocks = append(blocks, block)
	}
	_, err = fmt.Fprintf(out, "[\n%s\n]\n", strings.Join(blocks, ",\n"))
	return err
}

// firstLine is what of an error is the same in every run: the rest may be a map, printed as it comes.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// block writes a case with a line for each field: a change shows as the lines it changes.
func (c testCase) block() (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(c); err != nil {
		return "", err
	}
	var fields bytes.Buffer
	decoder := json.NewDecoder(&text)
	if _, err := decoder.Token(); err != nil {
		return "", err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return "", err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return "", err
		}
		if fields.Len() > 0 {
			fields.WriteString(",\n")
		}
		fmt.Fprintf(&fields, "    %q: %s", name, value)
	}
	return "  {\n" + fields.String() + "\n  }", nil
}
