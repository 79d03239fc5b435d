module events

go 1.19
