// SPDX-License-Identifier: Apache-2.0

package printer

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// AddRecordFlag binds -o of a command whose result is a list of records that are no API objects.
func AddRecordFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "", "output format: json, name, yaml (default: a table)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "name", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// CheckRecord returns an error if the format is none that Records knows; "" is one.
func CheckRecord(format string) error {
	switch format {
	case "", "json", "name", "yaml":
		return nil
	}
	return fmt.Errorf("unknown output format %q: known are json, name, yaml", format)
}

// Records writes records in a format of AddRecordFlag other than the default. name returns what stands for one of them.
func Records[T any](w io.Writer, format string, records []T, name func(T) string) error {
	if records == nil {
		records = []T{}
	}
	switch format {
	case "name":
		for _, r := range records {
			if _, err := fmt.Fprintln(w, name(r)); err != nil {
				return err
			}
		}
		return nil
	case "yaml":
		text, err := yaml.Marshal(records)
		if err != nil {
			return fmt.Errorf("printing: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	text, err := json.MarshalIndent(records, "", "    ")
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}
