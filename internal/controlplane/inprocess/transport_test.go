// SPDX-License-Identifier: Apache-2.0

package inprocess_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/drover-dev/drover/internal/controlplane/inprocess"
)

func client(h http.HandlerFunc) *http.Client {
	return &http.Client{Transport: &inprocess.Transport{Handler: h}}
}

func TestAHandlerSeesWhatAServerWouldShowIt(t *testing.T) {
	var seen *http.Request
	var got string
	c := client(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen, got = r, string(data)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("X-Answer", "too late")
		_, _ = io.WriteString(w, "made")
	})
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "the client's own")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://plane:6443/api/v1/pods?dryRun=All", strings.NewReader("a pod"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer x")
	answer, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || string(text) != "made" {
		t.Errorf("body %q, %v; want made", text, err)
	}
	if answer.StatusCode != http.StatusCreated || answer.Header.Get("X-Answer") != "yes" {
		t.Errorf("answer %s with %v", answer.Status, answer.Header)
	}
	if got != "a pod" || seen.Method != http.MethodPost || seen.RequestURI != "/api/v1/pods?dryRun=All" || seen.URL.Host != "" ||
		seen.URL.Path != "/api/v1/pods" || seen.Host != "plane:6443" || seen.TLS == nil || seen.Header.Get("Authorization") != "Bearer x" {
		t.Errorf("the handler saw %+v with body %q", seen, got)
	}
	if seen.Context().Value(key{}) != nil {
		t.Error("the server's context carries a value of the client's")
	}
}

func TestAWatchIsReadWhileItIsWritten(t *testing.T) {
	next, gone := make(chan string), make(chan struct{})
	c := client(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		w.(http.Flusher).Flush()
		for {
			select {
			case line := <-next:
				if _, err := io.WriteString(w, line+"\n"); err != nil {
					t.Error(err)
				}
			case <-r.Context().Done():
				return
			}
		}
	})
	answer, err := c.Get("https://plane/watch")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(answer.Body)
	for _, want := range []string{"added", "modified"} {
		next <- want
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("read %q, want %q", lines.Text(), want)
		}
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	<-gone // closing the body ends the server's side
}

func TestTheClientsContextEndsTheRequest(t *testing.T) {
	why := errors.New("no longer wanted")
	t.Run("before the answer", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := client(func(_ http.ResponseWriter, r *http.Request) {
			cancel(why)
			<-r.Context().Done()
		})
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://plane/", http.NoBody)
		answer, err := c.Do(req)
		if err == nil {
			answer.Body.Close()
		}
		if !errors.Is(err, why) {
			t.Errorf("error %v, want %v", err, why)
		}
	})
	t.Run("in the middle of it", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := client(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "begun")
			<-r.Context().Done()
		})
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://plane/", http.NoBody)
		answer, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		cancel(why)
		if _, err := io.ReadAll(answer.Body); !errors.Is(err, why) {
			t.Errorf("error %v, want %v", err, why)
		}
	})
}

func TestAHandlerThatBreaksOffIsAnError(t *testing.T) {
	for name, c := range map[string]*http.Client{
		"before the answer": client(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		"in the middle of it": client(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			panic("out of paper")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			answer, err := c.Get("https://plane/")
			if err == nil {
				_, err = io.ReadAll(answer.Body)
				answer.Body.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "broken the answer off") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAWriterWaitsForASlowReader(t *testing.T) {
	const size = 4 << 20
	c := client(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 32<<10)
		for range size / len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				t.Error(err)
			}
		}
	})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			answer, err := c.Get("https://plane/")
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			if n, err := io.Copy(io.Discard, answer.Body); n != size || err != nil {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
	}
	group.Wait()
}
