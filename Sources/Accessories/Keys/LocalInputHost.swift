// The machine's own devices, through the kernel and udev, and the media player's keys. No rule lives here.
import BlueZ
import DBus
import LinuxInput
import Logging
import MonotonicTime
import Reactor

/// Tagged input devices, serial ports, and the media player that BlueZ sends keys to.
actor LocalInputHost: InputHost {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// What problems without a device are told of.
    static let udev = LocalDeviceID("udev")

    private let registersMediaPlayer: Bool
    private let systemBus: DBusConnection
    private let logger: Logger
    private var monitor: LinuxInputMonitor?
    private var player: MediaPlayer?
    private var isPlayerTold = false
    private var handler: (@Sendable (LocalDeviceReport) -> Void)?

    /// - Parameters:
    ///   - registersMediaPlayer: A media player is registered with BlueZ, so that it gets the play and pause keys of Bluetooth headsets.
    ///     Other programs that play do not get them then.
    ///   - systemBus: Where bluetoothd is, for the media player.
    init(registersMediaPlayer: Bool, systemBus: DBusConnection, logger: Logger) {
        self.registersMediaPlayer = registersMediaPlayer
        self.systemBus = systemBus
        self.logger = logger
        loop = systemBus.loop
    }

    func start(_ handler: @escaping @Sendable (LocalDeviceReport) -> Void) async {
        guard monitor == nil else { return }
        self.handler = handler
        let monitor = LinuxInputMonitor(loop: loop, logger: logger) { [weak self] event in
            self?.assumeIsolated { $0.received(event) }
        }
        self.monitor = monitor
        do throws(LinuxInputError) {
            try await monitor.start()
        } catch {
            logger.warning("No wired buttons", metadata: ["reason": "\(error)"])
            handler(.problem(Self.udev, "\(error)"))
        }
        guard registersMediaPlayer, self.handler != nil else { return }
        let player = MediaPlayer(on: systemBus, logger: logger) { [weak self] event in
            self?.assumeIsolated { $0.received(event) }
        }
        self.player = player
        await player.start()
    }

    func stop() async {
        // Held keys come up, and are told, while the devices are closed.
        await monitor?.stop()
        monitor = nil
        handler = nil
        await player?.stop()
        player = nil
        isPlayerTold = false
    }

    // MARK: In

    private func received(_ event: LinuxInputEvent) {
        switch event {
        case .added(let device): handler?(.added(LocalDeviceFacts(device)))
        case .key(let node, let edge):
            handler?(.key(LocalDeviceID(node), code: edge.code, isDown: edge.isDown, at: edge.time))
        case .bytes(let node, let bytes, let time): handler?(.bytes(LocalDeviceID(node), bytes, at: time))
        case .removed(let node): handler?(.removed(LocalDeviceID(node)))
        case .problem(let node, let problem): handler?(.problem(LocalDeviceID(node), problem))
        }
    }

    private func received(_ event: MediaPlayerEvent) {
        switch event {
        case .registered(let isRegistered):
            guard isRegistered != isPlayerTold else { return }
            isPlayerTold = isRegistered
            handler?(isRegistered ? .added(.mediaPlayer) : .removed(.mediaPlayer))
        case .problem(let problem): handler?(.problem(.mediaPlayer, problem))
        case .pressed(let key, let time):
            // BlueZ tells no release.
            handler?(.key(.mediaPlayer, code: key.code, isDown: true, at: time))
            handler?(.key(.mediaPlayer, code: key.code, isDown: false, at: time))
        }
    }
}

extension LocalDeviceFacts {
    /// The media player, once BlueZ knows it.
    static let mediaPlayer = LocalDeviceFacts(
        id: .mediaPlayer, name: "Media player (AVRCP)", address: nil, device: nil, accessoryName: nil, profileID: nil,
        properties: [:], keys: Set(MediaKey.allCases.map(\.code)), isSerialPort: false)

    init(_ device: InputDevice) {
        self.init(
            id: LocalDeviceID(device.node), name: device.name, address: device.bluetoothAddress,
            device: device.vendor == 0 && device.product == 0
                ? nil : InputDeviceID(vendor: device.vendor, product: device.product),
            accessoryName: device.rule.accessoryName, profileID: device.rule.profileID, properties: device.properties,
            keys: device.keys, isSerialPort: device.kind == .serialPort)
    }
}

extension MediaKey {
    /// The code that BlueZ's own input device has for it (profiles/audio/avctp.c), of <linux/input-event-codes.h>.
    var code: UInt16 {
        switch self {
        case .play: 200
        case .pause: 201
        case .playPause: 164
        case .stop: 166
        case .next: 163
        case .previous: 165
        }
    }
}
