import socket
import sys

listen, *subscribers = [(host, int(port)) for host, port in (word.split(":") for word in sys.argv[1:])]
relay = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
relay.bind(listen)
while True:
    packet = relay.recv(65535)
    for subscriber in subscribers:
        relay.sendto(packet, subscriber)
