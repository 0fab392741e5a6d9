// What the rules need to know of a Bluetooth device, and what they can ask for.
import BlueZ

/// A device as BlueZ knows it.
package struct DeviceFacts: Equatable, Sendable {
    package var id: DeviceIdentifier
    package var address: String
    package var name: String?
    /// Services advertised or found.
    package var services: Set<BluetoothUUID>
    package var isPaired: Bool
    package var isTrusted: Bool
    /// What BlueZ says.
    package var isConnected: Bool
    package var servicesResolved: Bool
    /// Percent.
    package var battery: Int?
    package var characteristics: [CharacteristicFacts]
    /// It was paired for this link only: the keys were not kept.
    package var isPairedForNow = false
    /// The kernel has no Low Energy link to it any more, which BlueZ has not noticed.
    package var isLinkLost = false

    /// Whether its characteristics and keys can be heard.
    package var isReachable: Bool { isConnected && !isLinkLost }

    /// Its link is encrypted with keys that both sides keep.
    package var isBonded: Bool { isPaired && !isPairedForNow }

    /// The characteristic in a service; nil when it has none.
    package func find(_ service: BluetoothUUID?, _ characteristic: BluetoothUUID?) -> CharacteristicIdentifier? {
        characteristics.first { $0.service == service && $0.characteristic == characteristic }?.id
    }
}

/// A characteristic of a connected device.
package struct CharacteristicFacts: Equatable, Sendable {
    package var id: CharacteristicIdentifier
    package var service: BluetoothUUID
    package var characteristic: BluetoothUUID
}

/// Whether there is any Bluetooth at all.
package enum RadioState: Equatable, Sendable {
    /// bluetoothd is not on the bus.
    case noService
    /// No adapter, or none that is powered.
    case off
    case on
}

/// A stream of bytes that a Bluetooth classic device offers.
package enum StreamKind: String, Hashable, Sendable {
    /// The Serial Port Profile, through `org.bluez.Profile1`.
    case serialPort
    /// The AT commands of the hands-free profile that BlueALSA hands on (`org.bluealsa.RFCOMM1`).
    case handsFree
}

/// What the rules ask of BlueZ. Each is answered by one `completed`.
package enum BluetoothCommand: Hashable, Sendable {
    case connect(device: DeviceIdentifier)
    case disconnect(device: DeviceIdentifier)
    case pair(device: DeviceIdentifier)
    case trust(device: DeviceIdentifier)
    case startNotify(characteristic: CharacteristicIdentifier)
    /// Read the value; it comes as a report.
    case read(characteristic: CharacteristicIdentifier)
    case write(characteristic: CharacteristicIdentifier, value: [UInt8])
    /// Open a stream of bytes; its bytes and its end come as reports.
    case openStream(device: DeviceIdentifier, StreamKind)
    case closeStream(device: DeviceIdentifier, StreamKind)
    /// Write a few bytes to an open stream.
    case writeStream(device: DeviceIdentifier, StreamKind, [UInt8])
    /// Have the two sides of an LE link meet as these parameters say.
    case setLink(device: DeviceIdentifier, LEConnectionParameters)
    /// Forget a device, its bond and its table of services.
    case remove(device: DeviceIdentifier)
    case startDiscovery
    case stopDiscovery
    /// Ask who carries presses for a sign of life.
    case probe(PressCarrier)
    /// Give up a pairing that is under way.
    case cancelPairing(device: DeviceIdentifier)
    /// Have BlueZ connect known devices with these services by itself (GattProfile1).
    case autoConnect(services: Set<BluetoothUUID>)
}

/// Why BlueZ did not do it, as far as the rules differ.
package enum BluetoothFailure: Error, Hashable, Sendable {
    /// Something of the kind is under way already.
    case inProgress
    /// The controller gave the attempt up, though the device is there ("le-connection-abort-by-local").
    case abortedLocally
    /// Nobody answered: asleep or out of range.
    case timedOut
    /// The adapter is not ready.
    case notReady
    case notConnected
    /// Another program holds the characteristic.
    case notPermitted
    /// It wants pairing, or the keys no longer fit.
    case authentication
    /// The object is gone.
    case doesNotExist
    case notSupported
    /// bluetoothd or the bus went away meanwhile.
    case serviceGone
    /// Anything else, in BlueZ's words.
    case other(String)

    /// From BlueZ's answer.
    init(_ error: BlueZError) {
        switch error.kind {
        case .inProgress, .alreadyDone: self = .inProgress
        case .connectionAborted: self = .abortedLocally
        case .unreachable, .timedOut: self = .timedOut
        case .notConnected: self = .notConnected
        case .notReady: self = .notReady
        case .authenticationFailed: self = .authentication
        case .notPermitted:
            // BlueZ's words for ATT's "insufficient authentication" and "insufficient encryption" (src/gatt-client.c).
            let wantsPairing = error.message == "Not paired" || error.message == "Operation Not Authorized"
            self = wantsPairing ? .authentication : .notPermitted
        case .notSupported: self = .notSupported
        case .noSuchObject: self = .doesNotExist
        case .unavailable: self = .serviceGone
        case .invalidArguments, .cancelled, .accessDenied, .malformedAnswer, .failed:
            self = .other(String(error.message.prefix(200)))
        }
    }
}

extension BluetoothFailure: CustomStringConvertible {
    /// In words for notes and problems.
    package var description: String {
        switch self {
        case .inProgress: "something of the kind is under way already"
        case .abortedLocally: "the connection broke while it was set up"
        case .timedOut: "it did not answer in time"
        case .notReady: "the Bluetooth adapter is not ready"
        case .notConnected: "it is not connected"
        case .notPermitted: "it does not permit that, or another program has it"
        case .authentication: "it wants to be paired, or its keys no longer fit"
        case .doesNotExist: "it is gone"
        case .notSupported: "it does not support that"
        case .serviceGone: "the Bluetooth service went away"
        case .other(let words): words
        }
    }
}
