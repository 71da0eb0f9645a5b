package dashboard

import "sync"

// table is what a page is made of, for all who may see the same.
type table struct {
	visit *visit // that it was made for
	view  view
	err   error
}

// tables are being made. However many tabs are open on a job, one at a time asks the databases.
type tables struct {
	mu     sync.Mutex
	making map[string]*making // guarded by mu
}

type making struct {
	made  chan struct{} // closed when table is there
	table table
}

// share returns what is made under a key: by this call, or by the one that makes it already.
func (t *tables) share(key string, fill func() table) table {
	t.mu.Lock()
	m := t.making[key]
	if m != nil {
		t.mu.Unlock()
		<-m.made // it is bounded, as each visit is
		return m.table
	}
	m = &making{made: make(chan struct{})}
	if t.making == nil {
		t.making = map[string]*making{}
	}
	t.making[key] = m
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.making[key] == m {
			delete(t.making, key)
		}
		close(m.made)
	}()
	m.table = fill()
	return m.table
}

// expire has those who ask from now on shown what is made after an action.
func (t *tables) expire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.making = nil
}
