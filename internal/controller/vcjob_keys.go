// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"

	"github.com/drover-dev/drover/internal/vcjob/plugin"
)

// sshKeyBits is the size of the keys of a Job, as Volcano makes them.
const sshKeyBits = 2048

// newSSHKeys makes a pair of keys. It takes some hundred milliseconds of a processor.
func newSSHKeys() (plugin.Keys, error) {
	key, err := rsa.GenerateKey(rand.Reader, sshKeyBits)
	if err != nil {
		return plugin.Keys{}, fmt.Errorf("making an RSA key: %w", err)
	}
	return plugin.Keys{
		Private: pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		Public:  authorizedKey(&key.PublicKey),
	}, nil
}

// authorizedKey returns the line of authorized_keys that admits the owner of a key.
//
// Source: RFC 4253, sections 5 and 6.6.
func authorizedKey(key *rsa.PublicKey) []byte {
	const algorithm = "ssh-rsa"
	var wire []byte
	field := func(b []byte) {
		wire = append(binary.BigEndian.AppendUint32(wire, uint32(len(b))), b...)
	}
	integer := func(n *big.Int) {
		b := n.Bytes()
		if len(b) > 0 && b[0]&0x80 != 0 {
			b = append([]byte{0}, b...) // or it would be negative
		}
		field(b)
	}
	field([]byte(algorithm))
	integer(big.NewInt(int64(key.E)))
	integer(key.N)
	return []byte(algorithm + " " + base64.StdEncoding.EncodeToString(wire) + "\n")
}
