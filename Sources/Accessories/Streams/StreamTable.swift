// The streams that are open, being opened, or offered by a device before they were asked for.
import BlueZ
import DBus
import MonotonicTime
import Reactor

/// Which stream.
struct StreamID: Hashable {
    var device: DeviceIdentifier
    var kind: StreamKind
}

/// All streams of a host. Used on the loop only.
final class StreamTable {
    /// Streams at a time: twice as many as accessories.
    static let streamsMax = 128

    /// Connections that are there, read or waiting to be.
    private var readers: [StreamID: StreamReader] = [:]
    /// Those among them that are read.
    private var open: Set<StreamID> = []
    /// Attempts that run.
    private var opening: [StreamID: Int] = [:]
    /// What the rules have asked for since the last `close`: only that is accepted from a device.
    private(set) var wanted: Set<StreamID> = []

    /// Accepts the device's connections from now on. False when there are too many.
    func want(_ id: StreamID) -> Bool {
        guard wanted.contains(id) || wanted.count < Self.streamsMax else { return false }
        wanted.insert(id)
        return true
    }

    /// Whether an attempt of ours runs.
    func isOpening(_ id: StreamID) -> Bool { opening[id] != nil }

    func setOpening(_ id: StreamID, _ isOpening: Bool) {
        let count = (opening[id] ?? 0) + (isOpening ? 1 : -1)
        opening[id] = count > 0 ? count : nil
    }

    func isOpen(_ id: StreamID) -> Bool { open.contains(id) }

    /// There is a connection, whether it is read yet or not.
    func has(_ id: StreamID) -> Bool { readers[id] != nil }

    /// Keeps a connection until `start`. One that is there already makes way: the device has given it up.
    func put(_ descriptor: DBusDescriptor, _ id: StreamID) throws(SystemError) {
        let reader = try StreamReader(descriptor)
        drop(id)
        readers[id] = reader
    }

    /// Reads a connection from now on; no effect when it is read already.
    func start(
        _ id: StreamID, on loop: EventLoop, _ report: @escaping (BluetoothReport) -> Void
    ) throws(SystemError) {
        guard let reader = readers[id], open.insert(id).inserted else { return }
        do throws(SystemError) {
            try reader.start(
                on: loop, bytes: { report(.streamBytes(device: id.device, id.kind, $0, at: $1)) },
                ended: { [weak self, weak reader] in
                    guard let self, let reader, self.readers[id] === reader else { return }
                    self.drop(id)
                    report(.streamClosed(device: id.device, id.kind))
                })
        } catch {
            drop(id)
            throw error
        }
    }

    /// Writes a few bytes; false when it is not open.
    func write(_ bytes: [UInt8], _ id: StreamID) throws(SystemError) -> Bool {
        guard open.contains(id), let reader = readers[id] else { return false }
        try reader.write(bytes)
        return true
    }

    /// Hangs up; the stream stays wanted. Returns whether it was being read.
    @discardableResult
    func drop(_ id: StreamID) -> Bool {
        readers.removeValue(forKey: id)?.close()
        return open.remove(id) != nil
    }

    /// Hangs up, and accepts the device's connections no more.
    func close(_ id: StreamID) {
        wanted.remove(id)
        drop(id)
    }

    /// The same for all streams of a device.
    func close(_ device: DeviceIdentifier) {
        for kind in [StreamKind.serialPort, .handsFree] { close(StreamID(device: device, kind: kind)) }
    }

    /// The same for all streams.
    func closeAll() {
        for id in Array(readers.keys) { drop(id) }
        wanted = []
    }
}
