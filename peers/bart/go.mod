module lowroad/peers/bart

go 1.25

require github.com/gaissmai/bart v0.30.0
