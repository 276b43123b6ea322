// SPDX-License-Identifier: MIT OR Apache-2.0

// bart as a peer: a process that answers each JSON line on standard input with one on standard
// output. docs/src/router-designs.md describes requests and files. It looks up one by one: there is no
// batch in its interface.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/gaissmai/bart"
)

type table interface {
	Insert(netip.Prefix, uint16)
	Lookup(netip.Addr) (uint16, bool)
}

type request struct {
	Do, Engine, Table, Keys, Answers string
	Ms                               float64
}

type server struct {
	table   table
	six     bool
	path    string
	keys    []netip.Addr
	answers []uint16
}

func main() {
	runtime.GOMAXPROCS(1)
	fmt.Printf("{\"ready\":\"bart with %s\"}\n", runtime.Version())
	var server server
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var request request
		var answer any
		err := json.Unmarshal(lines.Bytes(), &request)
		switch {
		case err != nil:
		case request.Do == "load":
			answer, err = server.load(request)
		case request.Do == "pass":
			answer, err = server.pass(request)
		default:
			err = fmt.Errorf("do is load or pass")
		}
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		line, _ := json.Marshal(answer)
		fmt.Println(string(line))
	}
}

// load builds a table of records: an address, its length, a zero and a next hop.
func (s *server) load(r request) (any, error) {
	routes, err := os.ReadFile(r.Table)
	if err != nil {
		return nil, err
	}
	switch r.Engine {
	case "bart", "bart6":
		s.table = new(bart.Table[uint16])
	case "bart-fast", "bart6-fast":
		s.table = new(bart.Fast[uint16])
	default:
		return nil, fmt.Errorf("no engine %s", r.Engine)
	}
	s.six = len(r.Engine) > 4 && r.Engine[4] == '6'
	width := s.width()
	var prefixes []netip.Prefix
	var hops []uint16
	for at := 0; at < len(routes); at += width + 4 {
		record := routes[at : at+width+4]
		prefixes = append(prefixes, netip.PrefixFrom(s.address(record), int(record[width])))
		hops = append(hops, binary.NativeEndian.Uint16(record[width+2:]))
	}
	before, start := heap(), time.Now()
	for i, prefix := range prefixes {
		s.table.Insert(prefix, hops[i])
	}
	took := time.Since(start).Seconds()
	mib := heap() - before
	runtime.KeepAlive(prefixes)
	runtime.KeepAlive(hops)
	return map[string]any{"build_s": took, "mib": mib}, nil
}

func (s *server) width() int {
	if s.six {
		return 16
	}
	return 4
}

// address reads one as the files have them: IPv4 as a number of this machine, IPv6 as in packets.
func (s *server) address(from []byte) netip.Addr {
	if s.six {
		return netip.AddrFrom16([16]byte(from))
	}
	var octets [4]byte
	binary.BigEndian.PutUint32(octets[:], binary.NativeEndian.Uint32(from))
	return netip.AddrFrom4(octets)
}

func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

// read keeps the keys of the last request.
func (s *server) read(r request) error {
	if s.path == r.Keys {
		return nil
	}
	keys, err := os.ReadFile(r.Keys)
	if err != nil {
		return err
	}
	answers, err := os.ReadFile(r.Answers)
	if err != nil {
		return err
	}
	s.keys, s.answers = nil, nil
	for at := 0; at < len(keys); at += s.width() {
		s.keys = append(s.keys, s.address(keys[at:]))
	}
	for at := 0; at < len(answers); at += 2 {
		s.answers = append(s.answers, binary.NativeEndian.Uint16(answers[at:]))
	}
	s.path = r.Keys
	runtime.GC()
	return nil
}

// pass makes one pass that warms the caches and is checked, then timed ones.
func (s *server) pass(r request) (any, error) {
	if s.table == nil {
		return nil, fmt.Errorf("load comes first")
	}
	if err := s.read(r); err != nil {
		return nil, err
	}
	var checksum, wrong, lookups uint64
	for i, key := range s.keys {
		hop, _ := s.table.Lookup(key)
		checksum += uint64(i+1) * uint64(hop)
		if i < len(s.answers) && hop != s.answers[i] {
			wrong++
		}
	}
	limit := time.Duration(r.Ms * float64(time.Millisecond))
	var sum uint64
	var took time.Duration
	for start := time.Now(); lookups == 0 || took < limit; took = time.Since(start) {
		for _, key := range s.keys {
			hop, _ := s.table.Lookup(key)
			sum += uint64(hop)
		}
		lookups += uint64(len(s.keys))
	}
	runtime.KeepAlive(sum)
	return map[string]any{
		"ns":      float64(took.Nanoseconds()) / float64(lookups),
		"lookups": lookups, "wrong": wrong, "checksum": checksum,
	}, nil
}
