// A program for pods of the tests of the local node: it serves HTTP, and as a command it resolves names and fetches.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: probe serve ADDRESS TEXT | resolve NAME | get URL")
	}
	switch command, words := os.Args[1], os.Args[2:]; command {
	case "serve":
		serve(words[0], words[1])
	case "resolve":
		addresses, err := net.LookupHost(words[0])
		check(err)
		fmt.Println(strings.Join(addresses, " "))
	case "get":
		client := http.Client{Timeout: 5 * time.Second}
		response, err := client.Get(words[0])
		check(err)
		defer response.Body.Close()
		_, err = io.Copy(os.Stdout, response.Body)
		check(err)
	default:
		fail("unknown command " + command)
	}
}

func serve(address, text string) {
	http.HandleFunc("/", func(writer http.ResponseWriter, request *http.Request) {
		fmt.Println("answered", request.URL.Path)
		fmt.Fprintln(writer, text)
	})
	fmt.Println("serving on", address)
	check(http.ListenAndServe(address, nil))
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}
