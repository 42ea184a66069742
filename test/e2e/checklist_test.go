// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checklist is how many lines each part of Volcano's checklist has.
var checklist = map[string]int{"L": 8, "P": 21, "R": 3, "E": 3, "G": 6, "Q": 5, "X": 10, "A": 30, "C": 5, "K": 8, "S": 3, "U": 14}

// TestChecklist checks that CHECKLIST.md has every line once, and that what it names is there.
func TestChecklist(t *testing.T) {
	text, err := os.ReadFile("CHECKLIST.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \| .+? \| (.+) \|$`).FindAllStringSubmatch(string(text), -1) {
		if lines[m[1]] != "" {
			t.Errorf("line %s is there twice", m[1])
		}
		lines[m[1]] = m[2]
	}
	for part, n := range checklist {
		for i := 1; i <= n; i++ {
			line := fmt.Sprintf("%s%d", part, i)
			if lines[line] == "" {
				t.Errorf("line %s is missing", line)
			}
			delete(lines, line)
		}
	}
	for line := range lines {
		t.Errorf("line %s is not known", line)
	}
	sources := map[string]string{} // tests of a directory
	tests := func(dir string) string {
		if _, known := sources[dir]; !known {
			files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				sources[dir] += string(source)
			}
		}
		return sources[dir]
	}
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		name, dir := m[1], "."
		if strings.HasSuffix(name, ".txtar") && name != "x.txtar" {
			if _, err := os.Stat(name); err != nil {
				t.Error(err)
			}
			continue
		}
		if other, test, ok := strings.Cut(name, ": "); ok {
			dir, name = filepath.Join("..", "..", other), test
		}
		if !strings.HasPrefix(name, "Test") || strings.Contains(name, "…") {
			continue
		}
		test, sub, _ := strings.Cut(name, "/")
		if !strings.Contains(tests(dir), "func "+test+"(") {
			t.Errorf("there is no test %s in %s", test, dir)
		}
		if sub != "" && !strings.Contains(tests(dir), fmt.Sprintf("t.Run(%q,", sub)) {
			t.Errorf("test %s has no part %q", test, sub)
		}
	}
}
