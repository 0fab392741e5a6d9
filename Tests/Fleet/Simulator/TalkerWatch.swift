// What must be true of a pttd after every step, by what its user, the relay and BlueZ have told it.
import MonotonicTime
import PushToTalkCore
import RelayClient
import RelayProtocol

@testable import Accessories
@testable import Bridge

/// Follows what one pttd was told, and how long what must not last lasts.
struct TalkerWatch {
    /// A transmission ends so soon after its burst was refused or revoked.
    static let endLimit = Duration.milliseconds(5)
    /// What ends by events of the same moment ends within this time.
    static let settleLimit = Duration.milliseconds(50)
    /// Who was granted the floor after waiting begins when what is heard has been played.
    static let playOutLimit = ChannelManagerStateMachine.Configuration().playOutLimit + .milliseconds(100)
    /// The microphone stops so soon after bluetoothd hangs: the time in which that is noticed, the tail, and a margin.
    static let hangLimit = Duration.milliseconds(900)

    /// A burst that was ended by others, and the transmission that it belonged to.
    private struct Ended {
        var at: Instant
        var transmission: Instant
        var how: String
    }

    /// What must not last, with its invariant.
    private enum Fault: Int, CaseIterable {
        case noChannel, channelAfterHours, readyWithoutLink, waitingWithFloor, unknownTransmission, recordingInHang

        var text: (invariant: String, text: String) {
            switch self {
            case .noChannel: ("L", "no channel is active")
            case .channelAfterHours: ("L", "the hours are over, and a channel is active")
            case .readyWithoutLink: ("L", "the channel is called ready, and there is no link")
            case .waitingWithFloor: ("L", "it waits for the floor, and has it")
            case .unknownTransmission: ("I3", "the accessories transmit, and the channel does not know it")
            case .recordingInHang: ("I1", "it records for a button, and bluetoothd hangs")
            }
        }

        var limit: Duration {
            switch self {
            case .noChannel, .channelAfterHours, .readyWithoutLink, .unknownTransmission: TalkerWatch.settleLimit
            case .waitingWithFloor: TalkerWatch.playOutLimit
            case .recordingInHang: TalkerWatch.hangLimit
            }
        }
    }

    private var ended: Ended?
    /// Since when each of them lasts.
    private var since = [Instant?](repeating: nil, count: Fault.allCases.count)

    /// The link tells the end of the burst of a transmission.
    mutating func burstEnded(_ end: TransmissionEnd, transmission: Instant, at now: Instant) {
        switch end {
        case .completed, .aborted: break
        default: ended = Ended(at: now, transmission: transmission, how: "\(end)")
        }
    }

    /// - Returns: What is wrong, with its invariant; nil: nothing.
    mutating func check(_ process: Process, at now: Instant) -> (invariant: String, text: String)? {
        if let told = ended {
            if process.channel.machine.transmission?.begunAt != told.transmission {
                ended = nil
            } else if now > told.at + Self.endLimit {
                return ("I2", "it transmits on, and its burst was ended by others: \(told.how)")
            }
        }
        // After each step: the state machines are looked at in place, for a copy of one costs more than all of this.
        let (device, director, channel) = (process.device, process.director!, process.channel!)
        let bridge = director.bridge
        let isActive = director.machine.active != nil
        let isHung =
            device.bluez.isHung && channel.microphone.isRunning && !device.holdsWithoutBluetoothd
            && bridge?.machine.key.holders == [.accessories]
        let isReady = channel.machine.channel?.serviceStatus == .ready && bridge?.machine.burst == nil
        let isUnknown =
            process.accessories.isTransmitting && bridge?.machine.key.holders.contains(.accessories) != true
        let fault =
            lasts(.noChannel, device.isOpen && device.isToBeOnChannel && !isActive, at: now)
            ?? lasts(.channelAfterHours, !device.isOpen && isActive, at: now)
            ?? lasts(.readyWithoutLink, isReady && bridge?.link.isReady != true, at: now)
            ?? lasts(.waitingWithFloor, channel.machine.waiting != nil && bridge?.machine.hasFloor == true, at: now)
            ?? lasts(.unknownTransmission, isUnknown, at: now)
            ?? lasts(.recordingInHang, isHung, at: now)
        return fault?.text
    }

    /// The fault, when it has lasted for longer than it may.
    private mutating func lasts(_ fault: Fault, _ isSo: Bool, at now: Instant) -> Fault? {
        guard isSo else {
            since[fault.rawValue] = nil
            return nil
        }
        guard let began = since[fault.rawValue] else {
            since[fault.rawValue] = now
            return nil
        }
        return now > began + fault.limit ? fault : nil
    }
}
