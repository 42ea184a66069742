// SPDX-License-Identifier: Apache-2.0

// Package image says what the image name of a container means on a node that pulls nothing.
//
// The host's own file system is every container's root, unless the table maps an image to a directory. What an image would
// add beyond files, the command that runs when the pod names none, comes from the table too. Registry, tag and digest play no
// part in looking up a name.
//
// Start reading at Table.
package image

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/distribution/reference"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Image is what a name stands for.
type Image struct {
	// Names are the images that this entry is for: the last elements of a repository, as many as the pattern has, each matched by the
	// rules of path.Match. "busybox" fits "registry.k8s.io/e2e-test-images/busybox:1.36", "library/busy*" does not.
	Names []string `json:"names"`
	// Root is a directory of the host that serves as the container's root; "" is the host's own file system.
	Root string `json:"root,omitempty"`
	// Entrypoint and Cmd are what runs when a container names no command, or no arguments; as in an OCI image, a container's
	// command replaces both, and its args replace Cmd.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	// Env has "NAME=value" lines that the container's own environment goes before.
	Env        []string `json:"env,omitempty"`
	WorkingDir string   `json:"workingDir,omitempty"`
	// UID and GID are the user of the process when the pod names none; nil: the user that runs drover.
	UID *int64 `json:"uid,omitempty"`
	GID *int64 `json:"gid,omitempty"`
	// Shell is a program of the root that takes the place of /bin/sh, for images whose shell knows more than the host's.
	Shell string `json:"shell,omitempty"`
}

// Table maps image names to images; the first entry that fits counts.
type Table []Image

// ErrInvalidName means that a name is not the name of an image at all.
var ErrInvalidName = errors.New("invalid image name")

// pause waits for a signal and ends well, as the pause image does.
const pause = `trap 'echo "Shutting down, got signal: Terminated"; exit 0' TERM INT; while :; do sleep 86400 & wait $!; done`

// Defaults returns the table that every node has: the images that are nothing but a userland, which the host can stand in
// for, and the images of Kubernetes' own tests.
func Defaults() Table {
	return Table{
		{Names: []string{"pause", "pause-*"}, Entrypoint: []string{"/bin/sh", "-c", pause}},
		{
			// The shell of these images is busybox's, which knows [[ and $RANDOM; a Debian host's /bin/sh does not.
			Names: []string{"busybox", "alpine"},
			Cmd:   []string{"sh"},
			Shell: "/bin/bash",
		},
		{Names: []string{"debian", "ubuntu", "bash", "fedora", "centos", "rockylinux", "archlinux", "buildpack-deps"}, Cmd: []string{"bash"}},
		{Names: []string{"python"}, Cmd: []string{"python3"}},
		{Names: []string{"perl"}, Cmd: []string{"perl", "-de0"}},
		{Names: []string{"node"}, Cmd: []string{"node"}},
		{Names: []string{"golang"}, Cmd: []string{"bash"}},
		{
			Names: []string{"hello-world"},
			Cmd:   []string{"/bin/sh", "-c", `printf '\nHello from Drover!\nThis pod runs as a process of this machine.\n\n'`},
		},
		{
			// Of the test image "agnhost", only its pause command has a counterpart here.
			Names: []string{"agnhost"},
			Entrypoint: []string{"/bin/sh", "-c", `case "${1:-pause}" in pause) ;; *) echo "agnhost: command $1 is not available without its image" >&2; exit 1;; esac; ` +
				pause, "agnhost"},
			Cmd: []string{"pause"},
		},
	}
}

// Lookup returns the entry for an image name. Without one the second result is false and the first is the host's file system
// without a command.
func (t Table) Lookup(name string) (Image, bool, error) {
	elements, err := repository(name)
	if err != nil {
		return Image{}, false, err
	}
	for _, image := range t {
		for _, pattern := range image.Names {
			if fits(strings.Split(pattern, "/"), elements) {
				return image, true, nil
			}
		}
	}
	return Image{}, false, nil
}

// Load reads a table from a YAML or JSON file with a list "images" of entries. What it holds besides, or holds wrongly, is an error
// that names the field.
func Load(file string) (Table, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the table of images: %w", err)
	}
	var content struct {
		Images Table `json:"images"`
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err == nil {
		err = unmarshalStrict(text, &content)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the table of images in %s: %w", file, err)
	}
	if err := content.Images.Validate(); err != nil {
		return nil, fmt.Errorf("checking the table of images in %s: %w", file, err)
	}
	return content.Images, nil
}

// unmarshalStrict returns errors that name the whole path of a field that is not known, or is there twice.
func unmarshalStrict(text []byte, into any) error {
	strict, err := json.UnmarshalStrict(text, into)
	return errors.Join(append(strict, err)...)
}

// Validate reports every entry that cannot work.
func (t Table) Validate() error {
	var errs []error
	for i, image := range t {
		if len(image.Names) == 0 {
			errs = append(errs, fmt.Errorf("images[%d]: names are missing", i))
		}
		for _, pattern := range image.Names {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				errs = append(errs, fmt.Errorf("images[%d]: %q is no pattern", i, pattern))
			}
		}
		if image.Root != "" && !filepath.IsAbs(image.Root) {
			errs = append(errs, fmt.Errorf("images[%d]: root %q is not absolute", i, image.Root))
		}
		for _, line := range image.Env {
			if !strings.Contains(line, "=") {
				errs = append(errs, fmt.Errorf("images[%d]: env %q is not NAME=value", i, line))
			}
		}
	}
	return errors.Join(errs...)
}

// Command returns what a container runs whose pod gives command and args. It is empty when neither the pod nor the image says.
func (i Image) Command(command, args []string) []string {
	switch {
	case len(command) > 0:
		return append(append([]string(nil), command...), args...)
	case len(args) > 0:
		return append(append([]string(nil), i.Entrypoint...), args...)
	default:
		return append(append([]string(nil), i.Entrypoint...), i.Cmd...)
	}
}

// Ref names what stands in for the image, for the imageID of a container's status.
func (i Image) Ref() string {
	if i.Root != "" {
		return "dir://" + i.Root
	}
	return "host:///"
}

// repository returns the path elements of an image name without registry, tag and digest.
func repository(name string) ([]string, error) {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrInvalidName, name, err)
	}
	return strings.Split(reference.Path(ref), "/"), nil
}

func fits(pattern, elements []string) bool {
	if len(pattern) > len(elements) {
		return false
	}
	tail := elements[len(elements)-len(pattern):]
	for i := range pattern {
		if ok, err := path.Match(pattern[i], tail[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
