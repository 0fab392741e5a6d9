"""The controllers of virtual_bt.py and the air between them: bumble's, with what Linux needs put right."""
import asyncio
import logging
import os
import sys
import time

from bumble import hci
from bumble.controller import Controller
from bumble.link import LocalLink

LEGACY_ONLY = ~(hci.LeFeatureMask.LE_EXTENDED_ADVERTISING | hci.LeFeatureMask.LE_PERIODIC_ADVERTISING
                | hci.LeFeatureMask.LL_PRIVACY | hci.LeFeatureMask.EXTENDED_SCANNER_FILTER_POLICIES)


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def log(text):
    print(f't={now()} {text}', file=sys.stderr, flush=True)


class Air(LocalLink):
    """What connects the controllers. Addresses in `unreachable` are heard by nobody and hear nobody."""

    def __init__(self):
        super().__init__()
        self.unreachable = set()

    def send_acl_data(self, sender, destination, transport, data):
        # bumble names the sender's random address as the source, Linux connects with its public one: take the
        # address that the connection was made with.
        connection = sender.le_connections.get(destination)
        if connection is None:
            return super().send_acl_data(sender, destination, transport, data)
        receiver = self.find_le_controller(destination)
        if receiver is not None and not {connection.self_address, destination} & self.unreachable:
            asyncio.get_running_loop().call_soon(receiver.on_link_acl_data, connection.self_address, transport, data)

    def send_ll_control_pdu(self, sender_address, receiver_address, packet):
        if not {sender_address, receiver_address} & self.unreachable:
            super().send_ll_control_pdu(sender_address, receiver_address, packet)


class Radio(Controller):
    """bumble's controller with legacy advertising reports, a cancel that cancels, and remembered connection parameters."""

    le_features = Controller.le_features & LEGACY_ONLY

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.parameters = {}        # connection handle -> (interval, latency, supervision time-out), in the units of HCI

    def create_le_connection(self, peer_address):
        p = self.pending_le_connection
        super().create_le_connection(peer_address)
        connection = self.le_connections.get(p.peer_address)
        if connection is not None:
            self.parameters[connection.handle] = (p.connection_interval_max, p.max_latency, p.supervision_timeout)

    def on_hci_le_connection_update_command(self, command):
        super().on_hci_le_connection_update_command(command)
        p = (command.connection_interval_max, command.max_latency, command.supervision_timeout)
        self.parameters[command.connection_handle] = p
        log(f'connection update: interval {p[0] * 1.25} ms, latency {p[1]}, supervision time-out {p[2] * 10} ms')

    def on_hci_le_create_connection_cancel_command(self, command):
        pending, self.pending_le_connection = self.pending_le_connection, None
        if pending is None:
            return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.COMMAND_DISALLOWED_ERROR)
        self.send_hci_packet(hci.HCI_LE_Connection_Complete_Event(
            status=hci.HCI_ErrorCode.UNKNOWN_CONNECTION_IDENTIFIER_ERROR, connection_handle=0, role=0,
            peer_address_type=pending.peer_address_type, peer_address=pending.peer_address, connection_interval=0,
            peripheral_latency=0, supervision_timeout=0, central_clock_accuracy=0))
        return hci.HCI_StatusReturnParameters(hci.HCI_ErrorCode.SUCCESS)

    def on_advertising_pdu(self, pdu):
        event = hci.HCI_LE_Advertising_Report_Event

        def report(kind, data):
            self.send_hci_packet(event([event.Report(
                event_type=kind, address_type=pdu.advertiser_address.address_type, address=pdu.advertiser_address,
                data=data, rssi=-50)]))
        if pdu.advertiser_address in self.link.unreachable:
            return
        if self.le_scan_enable:
            report(event.EventType.ADV_IND, pdu.data)
            advertiser = self.link.find_le_controller(pdu.advertiser_address)
            if self.le_scan_type == 1 and advertiser is not None:
                report(event.EventType.SCAN_RSP, advertiser.le_legacy_advertiser.scan_response_data)
        pending = self.pending_le_connection
        if pending is not None and pending.peer_address == pdu.advertiser_address:
            self.create_le_connection(pdu.advertiser_address)

    def on_hci_command(self, command):
        # Commands answered by a status event are left without any answer by bumble when it does not know them.
        if isinstance(command, hci.HCI_SyncCommand):
            return super().on_hci_command(command)
        logging.warning('unsupported %s', command.name)
        self._send_hci_command_status(hci.HCI_ErrorCode.UNKNOWN_HCI_COMMAND_ERROR, command.op_code)

    def lose(self, connection):
        """The supervision time-out has passed."""
        if self.le_connections.get(connection.peer_address) is connection:
            self.on_le_disconnected(connection, hci.HCI_ErrorCode.CONNECTION_TIMEOUT_ERROR)


class KernelSink:
    """What the controller says to the kernel. One that is switched off takes nothing (ENXIO), and nothing else comes of it: asyncio
    would close the controller for it, and its adapter would be gone."""

    def __init__(self, transport):
        self.pipe = transport.sink.transport.get_extra_info('pipe')

    def on_packet(self, packet):
        try:
            os.write(self.pipe.fileno(), packet)
        except OSError as error:
            log(f'the kernel took no packet of {len(packet)} bytes: {error.strerror}')
