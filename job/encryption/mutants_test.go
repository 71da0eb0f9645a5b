package encryption

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "encryption", Name: "a program of before takes an encrypted job for one without arguments",
		File: "job/encryption/cipher.go", Func: "(*Cipher).Seal",
		Old:  "json.Marshal([]any{marker, sealed{key.id, key.aead.Seal(nil, nil, payload, binding(tenant, kind))}})",
		New:  "json.Marshal(map[string]any{marker: sealed{key.id, key.aead.Seal(nil, nil, payload, binding(tenant, kind))}})",
		Test: "TestEncryptedArgumentsAreNobodysStruct",
	},
	{
		Promise: "encryption", Name: "arguments that look encrypted are enqueued, and cannot be read",
		File: "job/encryption/cipher.go", Func: "IsEncrypted",
		Old:  "return err == nil && first == marker",
		New:  `return err == nil && first == marker && bytes.HasPrefix(payload, []byte("[\"tenure:encrypted\""))`,
		Test: "TestSealedArgumentsAreReadByTheirTenantOnly",
	},
	{
		Promise: "encryption", Name: "a tenant reads what was encrypted for another",
		File: "job/encryption/cipher.go", Func: "binding",
		Old:  `"tenure/1\x00" + tenant + "\x00" + kind`,
		New:  `"tenure/1\x00" + kind`,
		Test: "TestSealedArgumentsAreReadByTheirTenantOnly",
	},
	{
		Promise: "encryption", Name: "a handler gets the arguments of another kind",
		File: "job/encryption/cipher.go", Func: "binding",
		Old:  `"tenure/1\x00" + tenant + "\x00" + kind`,
		New:  `"tenure/1\x00" + tenant + "\x00"`,
		Test: "TestSealedArgumentsAreReadByTheirTenantOnly",
	},
	{
		Promise: "encryption", Name: "a tenant without keys has those of the others",
		File: "job/encryption/key.go", Func: "(Ring).of",
		Old:  "if own, ok := r.Tenants[tenant]; ok {",
		New:  "if own, ok := r.Tenants[tenant]; ok && len(own) > 0 {",
		Test: "TestKeysAreChangedAndDropped",
	},
	{
		Promise: "encryption", Name: "only the newest key decrypts",
		File: "job/encryption/key.go", Func: "(Keys).Find",
		Old:  "for _, key := range k {",
		New:  "for _, key := range k[:1] {",
		Test: "TestKeysAreChangedAndDropped",
	},
	{
		Promise: "encryption", Name: "a job whose key is gone is tried again",
		File: "job/encryption/cipher.go", Func: "(*Cipher).OpenRecord",
		Old:  "return job.Discard(err)",
		New:  "return err",
		Test: "TestKeysAreChangedAndDropped",
	},
	{
		Promise: "encryption", Name: "a key prints its secret",
		File: "job/encryption/key.go", Func: "(Key).Format",
		Old:  `fmt.Fprintf(s, "key %q", k.id)`,
		New:  `fmt.Fprintf(s, "key %q %v", k.id, k.aead)`,
		Test: "TestKeysDoNotPrint",
	},
}
