// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// authorityKey is the key of the Secret for the certificates of the authorities that are believed, the newest first. It stands beside
// the key pair that the newest one has signed.
const authorityKey = "ca.crt"

// handover is how long a new certificate is not shown after the API server was told of its authority: it hears of that by a watch.
const handover = 10 * time.Second

// ensureCertificate returns a key pair that is good for the time to come, and the authorities that are to be believed for it and for
// those that are shown until then. It makes them where there are none.
func (s *Server) ensureCertificate(ctx context.Context) (pair *tls.Certificate, authority []byte, err error) {
	namespace, name, ok := strings.Cut(s.cfg.Secret, "/")
	if !ok {
		return nil, nil, fmt.Errorf("reading the name of the Secret of webhooks: %q is not namespace/name", s.cfg.Secret)
	}
	secrets := s.client.CoreV1().Secrets(namespace)
	secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, nil, fmt.Errorf("reading the Secret of webhooks: %w", err)
	}
	now := s.clock.Now()
	if !missing {
		pair, err := s.usable(secret.Data, now)
		if err == nil {
			return pair, secret.Data[authorityKey], nil
		}
		s.log.Info("Webhook certificate is made anew", "because", err)
	}
	data, err := s.newPair(now)
	if err != nil {
		return nil, nil, fmt.Errorf("making a webhook certificate: %w", err)
	}
	if missing {
		_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: data}, metav1.CreateOptions{})
	} else {
		// What other processes show until they look again is believed as well.
		data[authorityKey] = append(data[authorityKey], firstBlock(secret.Data[authorityKey])...)
		secret.Data = data
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil { // perhaps another process was faster
		return nil, nil, fmt.Errorf("storing the Secret of webhooks: %w", err)
	}
	made, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, nil, fmt.Errorf("reading the new webhook certificate: %w", err)
	}
	return &made, data[authorityKey], nil
}

// use has a key pair shown now that the API server was told of the authorities to believe: at once where the one that is shown has
// none of these, else when it has surely heard.
func (s *Server) use(pair *tls.Certificate, authority []byte) {
	now := s.clock.Now()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	s.mu.Lock()
	defer s.mu.Unlock()
	believed := false
	if s.pair != nil {
		_, err := s.pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now})
		believed = err == nil
	}
	switch {
	case !believed || bytes.Equal(s.pair.Certificate[0], pair.Certificate[0]):
		s.pair, s.next = pair, nil
	case s.next == nil || !bytes.Equal(s.next.Certificate[0], pair.Certificate[0]):
		s.next, s.nextAt = pair, now.Add(handover)
		s.log.Info("Webhook certificate is to be changed", "in", handover, "until", pair.Leaf.NotAfter)
	}
}

// certificate returns the key pair that is shown now.
func (s *Server) certificate() (*tls.Certificate, error) {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil && !now.Before(s.nextAt) {
		s.pair, s.next = s.next, nil
	}
	if s.pair == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return s.pair, nil
}

// firstBlock returns the first certificate of a list.
func firstBlock(list []byte) []byte {
	block, _ := pem.Decode(list)
	if block == nil {
		return nil
	}
	return pem.EncodeToMemory(block)
}

// usable returns the key pair in data if it is good here for a third of its life at least.
func (s *Server) usable(data map[string][]byte, now time.Time) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, err
	}
	leaf := pair.Leaf
	if now.Add(s.cfg.Life / 3).After(leaf.NotAfter) {
		return nil, fmt.Errorf("it ends on %s", leaf.NotAfter.Format(time.DateOnly))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data[authorityKey]) {
		return nil, errors.New("it has no authority")
	}
	for _, host := range s.hosts() {
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: pool, CurrentTime: now}); err != nil {
			return nil, err
		}
	}
	return &pair, nil
}

// hosts are the names and addresses under which the API server reaches this process.
func (s *Server) hosts() []string {
	if namespace, name, ok := strings.Cut(s.cfg.Service, "/"); ok {
		return []string{name + "." + namespace + ".svc", name + "." + namespace, name + "." + namespace + ".svc.cluster.local"}
	}
	return []string{s.address().IP.String()}
}

// address returns where this process can be reached on its own machine.
func (s *Server) address() *net.TCPAddr {
	a := *s.listener.Addr().(*net.TCPAddr)
	if a.IP.IsUnspecified() {
		a.IP = net.IPv4(127, 0, 0, 1)
	}
	return &a
}

// newPair makes an authority that signs one certificate and is then forgotten.
func (s *Server) newPair(now time.Time) (map[string][]byte, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	begin, end := now.Add(-time.Hour), now.Add(s.cfg.Life)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "drover webhooks"}, NotBefore: begin, NotAfter: end,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + 1), Subject: pkix.Name{CommonName: "drover-webhook"}, NotBefore: begin, NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range s.hosts() {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	encode := func(kind string, der []byte) []byte {
		var b bytes.Buffer
		_ = pem.Encode(&b, &pem.Block{Type: kind, Bytes: der}) // a buffer takes everything
		return b.Bytes()
	}
	return map[string][]byte{
		authorityKey: encode("CERTIFICATE", caDER), corev1.TLSCertKey: encode("CERTIFICATE", leafDER), corev1.TLSPrivateKeyKey: encode("PRIVATE KEY", keyDER),
	}, nil
}
