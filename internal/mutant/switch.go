package mutant

import (
	"fmt"
	"path"
	"strconv"
)

// SwitchEnv names the mutant that code with switches runs, by its number.
const SwitchEnv = "TENURE_MUTANT"

// Switches returns files to lay over the code in which many mutants are there at once, so that
// they are compiled at once: each function begins with a switch that has a body for each of its
// mutants. The number of each is its place in found and one more. It returns which have one:
// not those in SQL, outside of functions' bodies, or in functions that have labels.
func (c *Code) Switches(found []Found) (files map[string]string, has []bool, err error) {
	has = make([]bool, len(found))
	cases := map[string]map[span]string{} // by file and body
	for i, f := range found {
		if f.from < f.body.from || f.to > f.body.to {
			continue
		}
		to, err := rename(f.File, f.mutant.New, f.Renamed)
		if err != nil {
			return nil, nil, err
		}
		if cases[f.File] == nil {
			cases[f.File] = map[span]string{}
		}
		cases[f.File][f.body] += fmt.Sprintf("case %d:\n%s%s%s\n%s\n", i+1, f.text[f.body.from:f.from], to, f.text[f.to:f.body.to], f.end)
		has[i] = true
	}
	files = map[string]string{}
	for file, of := range cases {
		text := c.texts[file]
		var edits []edit
		for body, cases := range of {
			edits = append(edits, edit{span{body.from, body.from}, "\nswitch tenureMutant {\n" + cases + "}\n"})
		}
		files[file] = apply(text, edits)
		dir := path.Dir(file)
		files[path.Join(dir, "tenure_mutant.go")] = "package " + c.names[dir] + "\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\n" +
			"var tenureMutant, _ = strconv.Atoi(os.Getenv(" + strconv.Quote(SwitchEnv) + "))\n"
	}
	return files, has, nil
}
