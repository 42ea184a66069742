// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package spawner

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// forkFiles hold what runs after the fork. raw.go is used before it as well.
var forkFiles = []string{"answer.go", "child.go", "log.go", "raw.go"}

// forkFunctions returns the functions in forkFiles with their comments.
func forkFunctions(t *testing.T) map[string]string {
	t.Helper()
	functions := map[string]string{}
	for _, name := range forkFiles {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			var doc []string
			if fn.Doc != nil {
				for _, c := range fn.Doc.List {
					doc = append(doc, c.Text)
				}
			}
			functions[fn.Name.Name] = strings.Join(doc, "\n") + "\n"
		}
	}
	if len(functions) < 40 {
		t.Fatalf("found %d functions only", len(functions))
	}
	return functions
}

func TestFunctionsOfTheForkAreMarked(t *testing.T) {
	for name, doc := range forkFunctions(t) {
		for _, mark := range []string{"//go:norace\n", "//go:nocheckptr\n"} {
			if !strings.Contains(doc, mark) {
				t.Errorf("%s is not marked %s", name, strings.TrimSpace(mark))
			}
		}
	}
}

// TestTheForkCallsNothingOfTheRuntime looks at what the compiler has made of them.
func TestTheForkCallsNothingOfTheRuntime(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command to build with; continuous integration has one")
	}
	binary := filepath.Join(t.TempDir(), "spawner.test")
	args := []string{"test", "-c", "-o", binary}
	if raceDetector {
		args = append(args, "-race")
	}
	if out, err := exec.Command(tool, append(args, ".")...).CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	out, err := exec.Command(tool, "tool", "objdump", "-s", `process/spawner\.`, binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	functions := forkFunctions(t)
	text := regexp.MustCompile(`^TEXT .*/spawner\.(\w+)(\.abi0)?\(SB\)`)
	call := regexp.MustCompile(`\s(CALL|BL|JMP|B)\s+(\S+)\(SB\)`)
	// panicBounds ends a process that is beyond help; morestack would, too, but there is always enough of it.
	allowed := regexp.MustCompile(`/spawner\.\w+(\.abi0)?$|^syscall\.RawSyscall6?$|^runtime\.(panicBounds|morestack_noctxt)(\.abi0)?$`)
	current, looked := "", 0
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "TEXT ") {
			current = ""
		}
		if m := text.FindStringSubmatch(line); m != nil {
			current = m[1]
			if _, ok := functions[current]; ok {
				looked++
			}
		}
		if _, ok := functions[current]; !ok {
			continue
		}
		if m := call.FindStringSubmatch(line); m != nil && !allowed.MatchString(m[2]) {
			t.Errorf("%s calls %s", current, m[2])
		}
	}
	if looked < 20 {
		t.Errorf("looked at %d functions only", looked)
	}
}

func TestLayoutOfKernelStructures(t *testing.T) {
	for name, sizes := range map[string][2]uintptr{
		"signalfd_siginfo": {unsafe.Sizeof(signalInfo{}), 128},
		"msghdr":           {unsafe.Sizeof(messageHeader{}), 56},
		"cmsghdr":          {unsafe.Sizeof(controlHeader{}), 16},
		"pollfd":           {unsafe.Sizeof(pollFD{}), 8},
		"iovec":            {unsafe.Sizeof(ioVec{}), 16},
		"value":            {unsafe.Offsetof(signalInfo{}.value), 48},
		"operation":        {operationSize % 8, 0},
		"header":           {headerSize % 8, 0},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("%s: %d, want %d", name, sizes[0], sizes[1])
		}
	}
}

func TestMappings(t *testing.T) {
	text := readAll("/proc/self/maps\x00")
	if m := mappingOf(text, uintptr(unsafe.Pointer(&state))); m.high <= m.low || m.low > uintptr(unsafe.Pointer(&state)) {
		t.Errorf("variables are in %+v", m)
	}
	if m := mappingOf(text, codeAddress()); !strings.HasSuffix(m.name, ".test") {
		t.Errorf("code is in %+v", m)
	}
	m, rest := nextMapping("00400000-01f06000 r-xp 00000000 fe:00 9978578      /some/file\nx")
	if want := (mapping{0x400000, 0x1f06000, "/some/file"}); m != want || rest != "x" {
		t.Errorf("mapping %+v and %q", m, rest)
	}
}

func TestDates(t *testing.T) {
	check := func(at time.Time) {
		t.Helper()
		state.nLine = 0
		addDate(at.Unix())
		if got, want := string(state.line[:state.nLine]), at.UTC().Format("2006-01-02T15:04:05"); got != want {
			t.Errorf("date %s, want %s", got, want)
		}
	}
	for _, at := range []string{
		"1970-01-01T00:00:00Z", "1999-12-31T23:59:59Z", "2000-02-29T12:00:00Z", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z",
		"2025-12-31T23:59:59Z", "2100-02-28T23:59:59Z", "2100-03-01T00:00:00Z", "2400-02-29T00:00:00Z",
	} {
		parsed, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		check(parsed)
	}
	for at := time.Unix(0, 0); at.Year() < 2200; at = at.Add(25*time.Hour + 13*time.Minute + 7*time.Second) {
		check(at)
	}
}

func TestNumbers(t *testing.T) {
	state.nLine = 0
	for _, n := range []struct {
		value  int64
		digits int
	}{{0, 1}, {7, 3}, {123, 2}, {1<<63 - 1, 1}} {
		addInt(n.value, n.digits)
		addByte(' ')
	}
	if got, want := string(state.line[:state.nLine]), "0 007 123 9223372036854775807 "; got != want {
		t.Errorf("numbers %q, want %q", got, want)
	}
}

// TestRecords feeds a stream in pieces and reads the log that comes of it.
func TestRecords(t *testing.T) {
	long := strings.Repeat("x", maxLogLine)
	cases := map[string]struct {
		pieces []string
		want   []string
	}{
		"a line":                            {[]string{"a\n"}, []string{"F a"}},
		"an empty line":                     {[]string{"\n"}, []string{"F "}},
		"lines in one piece":                {[]string{"a\nb\n\n"}, []string{"F a", "F b", "F "}},
		"a line in pieces is put together":  {[]string{"a", "b", "c\nd", "\n"}, []string{"F abc", "F d"}},
		"a line without an end is a piece":  {[]string{"a\nb"}, []string{"F a", "P b"}},
		"a line of the greatest length":     {[]string{long + "\n"}, []string{"F " + long}},
		"the same in two pieces":            {[]string{long, "\n"}, []string{"P " + long, "F "}},
		"a longer line is cut":              {[]string{long + long + "y\n"}, []string{"P " + long, "P " + long, "F y"}},
		"a longer line in pieces is cut":    {[]string{long[1:], "ab\n"}, []string{"P " + long[1:] + "a", "F b"}},
		"more lines than fit in one writev": {[]string{strings.Repeat("\n", maxPieces*3)}, slices.Repeat([]string{"F "}, maxPieces*3)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := logTo(t, 0)
			for _, piece := range tc.pieces {
				feed(piece, false)
			}
			write(0, state.streams[0].held, true)
			if got := records(t, file); !slices.Equal(got, tc.want) {
				t.Errorf("%d records, want %d: %.200q, want %.200q", len(got), len(tc.want), got, tc.want)
			}
		})
	}
}

// feed does what pump does with what it has read.
func feed(text string, all bool) {
	s := &state.streams[0]
	copy(state.buffers[0][s.held:], text)
	write(0, s.held+len(text), all)
}

// logTo makes a new file the log.
func logTo(t *testing.T, maxBytes int64) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	useLog(f, maxBytes)
	return f
}

func useLog(f *os.File, maxBytes int64) {
	state.newline[0] = '\n'
	state.regs[RegLog] = f.Fd()
	state.logSize, state.logLost, state.torn, state.streams[0].held = 0, 0, false, 0
	header().LogMaxBytes = maxBytes
}

func records(t *testing.T, f *os.File) (list []string) {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(line) < prefixSize {
			t.Fatalf("record %q", line)
		}
		if _, err := time.Parse("2006-01-02T15:04:05.000000000Z", string(line[:30])); err != nil || string(line[30:38]) != " stdout " {
			t.Errorf("prefix %q, %v", line[:prefixSize], err)
		}
		list = append(list, string(line[38:]))
	}
	return list
}

func FuzzRecords(f *testing.F) {
	f.Add([]byte("a\nbc"), uint16(1))
	f.Add([]byte(strings.Repeat("x", 40000)+"\n\n"), uint16(9999))
	file, err := os.OpenFile(filepath.Join(f.TempDir(), "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	f.Fuzz(func(t *testing.T, text []byte, size uint16) {
		if err := file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		useLog(file, 0)
		for rest := text; len(rest) > 0; {
			n := min(int(size)+1, len(rest), bufferSize-state.streams[0].held)
			feed(string(rest[:n]), false)
			rest = rest[n:]
		}
		write(0, state.streams[0].held, true)
		var got []byte
		for _, r := range records(t, file) {
			got = append(got, r[2:]...)
			if r[0] == 'F' {
				got = append(got, '\n')
			}
		}
		if !bytes.Equal(got, text) {
			t.Errorf("the log says %q, written was %q", got, text)
		}
	})
}
