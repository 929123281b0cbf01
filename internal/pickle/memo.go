package pickle

// A memo holds the values that a pickle has stored under numbers. inTurn holds those that were
// numbered in sequence, as picklers do; others holds the rest.
type memo struct {
	inTurn []any
	others map[uint32]any
}

// len returns how many values are stored. It is also the number under which MEMOIZE stores the next
// value.
func (m *memo) len() int { return len(m.inTurn) + len(m.others) }

func (m *memo) get(id uint32) (v any, ok bool) {
	if uint64(id) < uint64(len(m.inTurn)) {
		return m.inTurn[id], true
	}
	v, ok = m.others[id]
	return v, ok
}

func (m *memo) put(id uint32, v any) {
	switch n := uint64(len(m.inTurn)); {
	case uint64(id) < n:
		m.inTurn[id] = v
	case uint64(id) == n && len(m.others) == 0:
		m.inTurn = append(m.inTurn, v)
	default:
		if m.others == nil {
			m.others = make(map[uint32]any)
		}
		m.others[id] = v
	}
}
