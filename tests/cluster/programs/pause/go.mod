module carpool.example/pause
go 1.24
