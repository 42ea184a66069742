// SPDX-License-Identifier: Apache-2.0

// Package pki keeps the keys and certificates of a standalone plane in a directory: one certificate authority, what it
// signed, and the key of service account tokens.
//
// It makes what is missing or damaged, renews what would soon expire or no longer fits the machine's addresses, and leaves
// everything else alone. Every file is written beside its place and renamed into it, readable by its owner alone. It never
// prints or returns a private key.
//
// Start reading at Ensure.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/drover-dev/drover/internal/atomicfile"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced.
	renewBefore = 30 * 24 * time.Hour
	// backdate keeps certificates valid when a clock is set back a little.
	backdate = time.Hour
)

const (
	caFile             = "ca.crt"
	caKeyFile          = "ca.key"
	serviceAccountFile = "service-account.key"
)

// CAPath returns the path of the authority's certificate in the directory dir.
func CAPath(dir string) string { return filepath.Join(dir, caFile) }

// ServiceAccountPath returns the path of the key that signs service account tokens.
func ServiceAccountPath(dir string) string { return filepath.Join(dir, serviceAccountFile) }

// Pair is a certificate that the authority has signed, and its key.
type Pair string

// The certificates of a plane.
const (
	Server        Pair = "apiserver"         // what the API server shows its clients
	KubeletClient Pair = "apiserver-kubelet" // what the API server shows the node, for logs and exec
	Node          Pair = "node"              // what the node shows the API server
	Admin         Pair = "admin"             // the user of the kubeconfig
)

// KubeletClientName is the common name of KubeletClient. The node serves logs and exec to it alone; at the API server it
// has no rights.
const KubeletClientName = "kube-apiserver-kubelet-client"

// CertPath returns the path of the certificate in the directory dir.
func (p Pair) CertPath(dir string) string { return filepath.Join(dir, string(p)+".crt") }

// KeyPath returns the path of the private key in the directory dir.
func (p Pair) KeyPath(dir string) string { return filepath.Join(dir, string(p)+".key") }

// Addresses are the names under which a machine is reached.
type Addresses struct {
	Names []string // host names
	IPs   []net.IP
}

// Ensure makes the directory dir complete for a plane that is reached under server and whose node is reached under node.
// It returns one line for each thing that it made anew or renewed, in a fixed order; a file that is made for the first time
// is not mentioned unless others were there. now is the present.
//
// A new authority replaces everything that the old one has signed.
func Ensure(dir string, server, node Addresses, now time.Time) ([]string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of keys: %w", err)
	}
	e := &ensurer{dir: dir, now: now}
	if err := e.authority(); err != nil {
		return nil, err
	}
	// kube-apiserver's own names, as in any cluster; the plane adds those of the machine.
	server.Names = append([]string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}, server.Names...)
	for _, leaf := range []leaf{
		{pair: Server, name: "kube-apiserver", at: &server},
		{pair: KubeletClient, name: KubeletClientName},
		{pair: Node, name: "drover-node", at: &node},
		{pair: Admin, name: "drover-admin", groups: []string{"system:masters"}},
	} {
		if err := e.leaf(leaf); err != nil {
			return nil, err
		}
	}
	if err := e.serviceAccount(); err != nil {
		return nil, err
	}
	return e.changes, nil
}

// leaf says what a signed certificate must contain.
type leaf struct {
	pair   Pair
	name   string // common name: the user, for a client
	groups []string
	at     *Addresses // nil: a client
}

type ensurer struct {
	dir     string
	now     time.Time
	ca      *x509.Certificate
	caKey   crypto.Signer
	fresh   bool // the authority is new, and so must everything be
	changes []string
}

func (e *ensurer) note(format string, args ...any) {
	e.changes = append(e.changes, fmt.Sprintf(format, args...))
}

func (e *ensurer) authority() error {
	cert, key, err := load(CAPath(e.dir), filepath.Join(e.dir, caKeyFile))
	switch {
	case err == nil && e.now.Add(renewBefore).Before(cert.NotAfter) && cert.IsCA:
		e.ca, e.caKey = cert, key
		return nil
	case err == nil:
		e.note("the certificate authority expires on %s: made a new one", cert.NotAfter.Format(time.DateOnly))
	case errors.As(err, new(damage)):
		e.note("made a new certificate authority, because %v", err)
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	e.fresh = true
	template := e.template("drover", nil, authorityLife)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the authority's key: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		return fmt.Errorf("making the certificate authority: %w", err)
	}
	if e.ca, err = x509.ParseCertificate(der); err != nil {
		return fmt.Errorf("making the certificate authority: %w", err)
	}
	e.caKey = signer
	return e.write(caFile, caKeyFile, der, signer)
}

func (e *ensurer) leaf(l leaf) error {
	if !e.fresh {
		why, err := e.unfit(l)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return err
		case why == "":
			return nil
		default:
			e.note("renewed the certificate %q: %s", l.pair, why)
		}
	}
	template := e.template(l.name, l.groups, leafLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	if l.at != nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.DNSNames, template.IPAddresses = l.at.Names, l.at.IPs
	} else {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	if template.NotAfter.After(e.ca.NotAfter) {
		template.NotAfter = e.ca.NotAfter
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the key %q: %w", l.pair, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, e.ca, signer.Public(), e.caKey)
	if err != nil {
		return fmt.Errorf("signing the certificate %q: %w", l.pair, err)
	}
	return e.write(string(l.pair)+".crt", string(l.pair)+".key", der, signer)
}

// unfit says why the certificate of l cannot stay, or "". The error is os.ErrNotExist if there is none.
func (e *ensurer) unfit(l leaf) (string, error) {
	cert, _, err := load(l.pair.CertPath(e.dir), l.pair.KeyPath(e.dir))
	switch {
	case errors.As(err, new(damage)):
		return err.Error(), nil
	case err != nil:
		return "", err
	case !signedBy(cert, e.ca):
		return "another authority has signed it", nil
	case !e.now.Add(renewBefore).Before(cert.NotAfter):
		return "it expires on " + cert.NotAfter.Format(time.DateOnly), nil
	case e.now.Before(cert.NotBefore):
		return "it is not valid before " + cert.NotBefore.Format(time.DateTime), nil
	case cert.Subject.CommonName != l.name || !slices.Equal(cert.Subject.Organization, l.groups):
		return "it is for " + cert.Subject.String(), nil
	case l.at != nil && !covers(cert, *l.at):
		return "the machine's addresses have changed", nil
	}
	return "", nil
}

// signedBy reports whether ca has signed cert.
func signedBy(cert, ca *x509.Certificate) bool { return cert.CheckSignatureFrom(ca) == nil }

// covers reports whether cert is good for every address in at. More than that does no harm: a laptop that leaves a network
// comes back to it.
func covers(cert *x509.Certificate, at Addresses) bool {
	for _, name := range at.Names {
		if !slices.Contains(cert.DNSNames, name) {
			return false
		}
	}
	for _, ip := range at.IPs {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

func (e *ensurer) template(name string, groups []string, life time.Duration) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand does not fail on any system that runs this
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    e.now.Add(-backdate),
		NotAfter:     e.now.Add(life),
	}
}

// serviceAccount keeps the key that signs service account tokens. It never expires: a new key ends every token.
func (e *ensurer) serviceAccount() error {
	path := ServiceAccountPath(e.dir)
	_, err := loadKey(path)
	if err == nil {
		return nil
	}
	switch {
	case errors.As(err, new(damage)):
		e.note("made a new key for service account tokens, because %v; pods that hold a token must be started again", err)
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the key of service account tokens: %w", err)
	}
	return e.writeKey(serviceAccountFile, signer)
}

// write stores a pair, key first: a crash between the two leaves a certificate that does not fit its key, which load tells.
func (e *ensurer) write(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	if err := e.writeKey(keyFile, key); err != nil {
		return err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return atomicfile.Write(filepath.Join(e.dir, certFile), data, 0o600)
}

func (e *ensurer) writeKey(file string, key *ecdsa.PrivateKey) error {
	// The older form, because that is what Kubernetes' reader of service account keys takes for elliptic curves.
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the key %s: %w", file, err)
	}
	return atomicfile.Write(filepath.Join(e.dir, file), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// damage is what is wrong with the content of a file. Anything else that goes wrong, such as a file that may not be read, is
// not cured by making a new one.
type damage string

func (d damage) Error() string { return string(d) }

func damaged(format string, args ...any) error { return damage(fmt.Sprintf(format, args...)) }

// load reads a certificate and its key. The error is os.ErrNotExist if there is no certificate, a damage if the two are not
// a pair that can be used.
func load(certPath, keyPath string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(certPath)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a certificate: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, damaged("%s holds no certificate", certPath)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, damaged("%s holds no certificate: %v", certPath, err)
	}
	key, err := loadKey(keyPath)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil, damaged("the key of %s is missing", certPath)
	case err != nil:
		return nil, nil, err
	case !key.PublicKey.Equal(cert.PublicKey):
		return nil, nil, damaged("the key of %s belongs to another certificate", certPath)
	}
	return cert, key, nil
}

func loadKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a key: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, damaged("%s holds no key", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, damaged("%s holds no key: %v", path, err)
	}
	return key, nil
}
