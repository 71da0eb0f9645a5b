// Package encryption encrypts jobs' arguments, so that anyone who reads the ledger, a dump of it or a
// standby cannot read them.
//
// A [Cipher] has the keys of a [KeyRing]; [Config] is the encryption section of the configuration, and
// makes one. Arguments are encrypted where a job is enqueued and decrypted where it runs. What stands in
// the ledger is JSON: the key's id, and AES-256-GCM's random nonce, ciphertext and tag. They are bound to
// the job's tenant and kind, so nobody makes another tenant's job of them. Without its key a job can
// nowhere be read any more, which is how a tenant is forgotten.
//
// Everything here is safe for concurrent use. Nothing here prints or logs a key.
package encryption
