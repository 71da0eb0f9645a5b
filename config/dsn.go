package config

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

const mask = "***"

var (
	// A mark stands for a reference while a DSN is taken apart: references hold
	// characters that mean something there.
	mark            = regexp.MustCompile(`tenure0reference([0-9]+)x`)
	keywordPassword = regexp.MustCompile(`(?i)(\b(?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)`)
	queryPassword   = regexp.MustCompile(`(?i)^(?:ssl)?password$`)
)

// maskDSN replaces the passwords that dsn spells out; references stay. The result
// is a connection string whenever dsn was one.
func maskDSN(dsn string) string {
	var tokens []string
	s := anyToken.ReplaceAllStringFunc(dsn, func(token string) string {
		tokens = append(tokens, token)
		return fmt.Sprintf("tenure0reference%dx", len(tokens)-1)
	})
	literal := func(password string) bool { return mark.ReplaceAllString(password, "") != "" }

	if scheme, rest, isURL := cutScheme(s); isURL {
		from, to := passwordIn(rest)
		tail := rest[to:]
		if literal(rest[from:to]) {
			rest = rest[:from] + mask
		} else {
			rest = rest[:to]
		}
		if path, query, found := strings.Cut(tail, "?"); found {
			pairs := strings.Split(query, "&")
			for i, pair := range pairs {
				key, value, _ := strings.Cut(pair, "=")
				if plain, err := url.QueryUnescape(key); err == nil && queryPassword.MatchString(plain) && literal(value) {
					pairs[i] = key + "=" + mask
				}
			}
			tail = path + "?" + strings.Join(pairs, "&")
		}
		s = scheme + "://" + rest + tail
	} else {
		s = keywordPassword.ReplaceAllStringFunc(s, func(pair string) string {
			m := keywordPassword.FindStringSubmatch(pair)
			if !literal(strings.Trim(m[2], "'")) {
				return pair
			}
			return m[1] + mask
		})
	}
	return mark.ReplaceAllStringFunc(s, func(m string) string {
		if i, err := strconv.Atoi(mark.FindStringSubmatch(m)[1]); err == nil && i < len(tokens) {
			return tokens[i]
		}
		return m
	})
}

var (
	portThenPath = regexp.MustCompile(`^[0-9]{1,5}(?:[/?#,]|$)`)
	queryBegin   = regexp.MustCompile(`[?&][A-Za-z_.]+=`)
)

var urlScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

func cutScheme(dsn string) (scheme, rest string, isURL bool) {
	scheme, rest, isURL = strings.Cut(dsn, "://")
	return scheme, rest, isURL && urlScheme.MatchString(scheme)
}

// passwordIn finds the password in what follows the :// of a URL; from equals to
// when there is none. It looks further than a URL's rules go, since people write
// passwords with / ? and # as they are.
func passwordIn(rest string) (from, to int) {
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	colon := strings.IndexAny(rest[:end], ":@[") // a host may be [::1]
	if colon < 0 || rest[colon] != ':' {
		return 0, 0
	}
	from = colon + 1
	query := len(rest)
	if at := queryBegin.FindStringIndex(rest[end:]); at != nil {
		query = end + at[0]
	}
	to = strings.LastIndexByte(rest[:query], '@')
	if to < 0 {
		to = strings.LastIndexByte(rest, '@')
	}
	if to < from || to > end && portThenPath.MatchString(rest[from:]) {
		return from, from
	}
	return from, to
}

// brokenPassword says whether a URL's password ends before its writer thought.
func brokenPassword(dsn string) bool {
	_, rest, isURL := cutScheme(dsn)
	from, to := passwordIn(rest)
	return isURL && strings.ContainsAny(rest[from:to], "/?#")
}
