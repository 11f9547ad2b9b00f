//! One program over several ports, by several workers.
//!
//! A port is served by one worker, so its frames stay in order; workers beyond the number of ports serve what CPU maps steer to
//! them. The maps have one owner, so the program runs in one worker at a time, a batch after the other, while the others wait for
//! frames, receive and send: those system calls cost a hundred times what a program does. The worker's number is the CPU the
//! program sees. Invariant: no worker waits for another while it holds the program.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde::Serialize;
use weir_vm::{Env, Fault, Frame, Machine};

use super::redirect::{self, RedirectTarget};
use super::{Arrival, Look, Port};

/// How long a worker without work waits before it looks whether it is to stop.
const IDLE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};
/// `XDP_*`, by number.
const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;
const REDIRECT: u32 = 4;

/// What passing a frame means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// [`Port::pass`]: a written capture; nothing on an interface, whose stack has its own copy.
    Port,
    /// The frame leaves by the other of two ports, as on a wire with the program in its middle.
    Across,
}

/// A program and the ports it serves.
pub struct Service<'s> {
    /// The ports. Two have different numbers.
    pub ports: &'s [&'s dyn Port],
    /// Workers, at least one.
    pub workers: usize,
    /// What passing means.
    pub pass: Pass,
    /// Most instructions for one frame.
    pub instruction_budget: u64,
}

/// Why a service ended early or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A port cannot go on.
    #[error("{port}: {error}")]
    Port {
        /// Its name.
        port: String,
        /// Why.
        error: io::Error,
    },
    /// The service itself is impossible.
    #[error("{0}")]
    Setup(&'static str),
}

/// What became of frames at one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCount {
    /// Name of the port.
    pub port: String,
    /// Frames the program saw; the five verdicts below add up to it.
    pub received: u64,
    /// Verdict aborted, a number that is no verdict, or a fault.
    pub aborted: u64,
    /// Verdict drop.
    pub drop: u64,
    /// Verdict pass.
    pub pass: u64,
    /// Verdict tx.
    pub tx: u64,
    /// Verdict redirect.
    pub redirect: u64,
    /// Frames that left by this port, whoever sent them there.
    pub sent: u64,
    /// Frames lost in front of the program: the socket's buffer was full, or they could not be segmented.
    pub missed: u64,
}

/// What a service did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// By port, in the service's order.
    pub ports: Vec<PortCount>,
    /// Frames a CPU map steered to another worker.
    pub steered: u64,
    /// Redirected to an interface that is no port of the service, or to an empty entry.
    pub no_port: u64,
    /// Redirected to a CPU without a worker.
    pub no_worker: u64,
    /// The queue of the worker redirected to was full.
    pub queue_full: u64,
    /// Redirected to an AF_XDP socket; the service has none.
    pub no_socket: u64,
    /// The map's entry names a second program, which the service does not run.
    pub second_program: u64,
    /// Too long for the port's MTU.
    pub too_big: u64,
    /// The port's queue was full.
    pub no_room: u64,
    /// The port refused for another reason.
    pub not_sent: u64,
    /// Frames at which the program faulted; all are dropped.
    pub faults: u64,
    /// The first fault.
    #[serde(skip)]
    pub first_fault: Option<Fault>,
}

/// What is to be done with a frame once the program is free for others.
enum Order {
    /// By this port.
    Send(usize),
    /// As a frame that passed the port it came in by.
    Pass,
    /// To this worker's queue, which holds so many.
    Steer(usize, usize),
}

/// A frame on its way out.
struct Departure {
    frame: Vec<u8>,
    now_ns: u64,
    from: usize,
    orders: Vec<Order>,
}

/// A worker's queue of frames that CPU maps steered to it.
struct Queue {
    frames: Mutex<VecDeque<Departure>>,
    bell: OwnedFd,
}

/// What all workers share.
struct Shared<'s> {
    service: &'s Service<'s>,
    program: Mutex<&'s mut Machine>,
    queues: Vec<Queue>,
    /// Workers that may still steer frames to others.
    sources: AtomicUsize,
    stop: &'s AtomicBool,
}

impl Service<'_> {
    /// Runs until all ports are over or `stop` is set; frames received until then are dealt with.
    ///
    /// # Errors
    /// [`ServiceError`] when the service is impossible or a port fails.
    pub fn run(&self, program: &mut Machine, stop: &AtomicBool) -> Result<Totals, ServiceError> {
        if self.workers == 0 || self.ports.is_empty() {
            return Err(ServiceError::Setup(
                "a service needs a port and a worker at least",
            ));
        }
        if self.pass == Pass::Across && self.ports.len() != 2 {
            return Err(ServiceError::Setup(
                "a wire has two ends: name two interfaces",
            ));
        }
        let mut numbers: Vec<u32> = self.ports.iter().map(|p| p.ifindex()).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(ServiceError::Setup("an interface is named twice"));
        }
        if program.cpus() < self.workers as u32 {
            return Err(ServiceError::Setup(
                "the program was loaded for fewer CPUs than there are workers",
            ));
        }
        let queue = || -> io::Result<Queue> {
            Ok(Queue {
                frames: Mutex::default(),
                bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            })
        };
        let queues = (0..self.workers)
            .map(|_| queue())
            .collect::<io::Result<_>>();
        let shared = Shared {
            service: self,
            program: Mutex::new(program),
            queues: queues.map_err(|error| ServiceError::Port {
                port: "eventfd".to_owned(),
                error,
            })?,
            sources: AtomicUsize::new(self.workers),
            stop,
        };
        let results: Vec<Result<Totals, ServiceError>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.workers)
                .map(|number| {
                    let shared = &shared;
                    scope.spawn(move || Worker::new(shared, number).run())
                })
                .collect();
            workers
                .into_iter()
                .map(|worker| {
                    worker
                        .join()
                        .unwrap_or(Err(ServiceError::Setup("a worker ended in a defect")))
                })
                .collect()
        });
        let mut totals = self.nothing();
        for result in results {
            totals.add(result?);
        }
        for (count, port) in totals.ports.iter_mut().zip(self.ports) {
            count.missed = port.missed().map_err(|error| ServiceError::Port {
                port: port.name().to_owned(),
                error,
            })?;
        }
        Ok(totals)
    }

    fn nothing(&self) -> Totals {
        Totals {
            ports: self
                .ports
                .iter()
                .map(|port| PortCount {
                    port: port.name().to_owned(),
                    ..PortCount::default()
                })
                .collect(),
            ..Totals::default()
        }
    }
}

impl Totals {
    /// Frames that were to go somewhere and did not.
    pub fn failed(&self) -> u64 {
        self.no_port
            + self.no_worker
            + self.queue_full
            + self.no_socket
            + self.second_program
            + self.too_big
            + self.no_room
            + self.not_sent
    }

    fn add(&mut self, other: Totals) {
        for (mine, theirs) in self.ports.iter_mut().zip(other.ports) {
            mine.received += theirs.received;
            mine.aborted += theirs.aborted;
            mine.drop += theirs.drop;
            mine.pass += theirs.pass;
            mine.tx += theirs.tx;
            mine.redirect += theirs.redirect;
            mine.sent += theirs.sent;
        }
        self.steered += other.steered;
        self.no_port += other.no_port;
        self.no_worker += other.no_worker;
        self.queue_full += other.queue_full;
        self.no_socket += other.no_socket;
        self.second_program += other.second_program;
        self.too_big += other.too_big;
        self.no_room += other.no_room;
        self.not_sent += other.not_sent;
        self.faults += other.faults;
        if self.first_fault.is_none() {
            self.first_fault = other.first_fault;
        }
    }
}

/// A worker that may still steer frames to others. However it ends, they must not wait for it; if it ends in a defect, they stop, too.
struct Source<'w>(&'w Shared<'w>);

impl Drop for Source<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop.store(true, Ordering::Release);
        }
        self.0.sources.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Worker<'w> {
    shared: &'w Shared<'w>,
    number: usize,
    frame: Frame,
    totals: Totals,
    /// Frames the program has seen in this worker: the seed of its random numbers.
    seen: u64,
}

impl<'w> Worker<'w> {
    fn new(shared: &'w Shared<'w>, number: usize) -> Self {
        Worker {
            shared,
            number,
            frame: Frame::new(&[]),
            totals: shared.service.nothing(),
            seen: 0,
        }
    }

    fn run(mut self) -> Result<Totals, ServiceError> {
        let result = self.work(Source(self.shared));
        if result.is_err() {
            // The others would go on for ever without this worker's ports.
            self.shared.stop.store(true, Ordering::Release);
        }
        result.map(|()| self.totals)
    }

    fn work(&mut self, source: Source<'_>) -> Result<(), ServiceError> {
        let mut source = Some(source);
        let service = self.shared.service;
        let mine = || {
            service
                .ports
                .iter()
                .enumerate()
                .filter(|(n, _)| n % service.workers == self.number)
        };
        let mine: Vec<(usize, &dyn Port)> = mine().map(|(n, port)| (n, *port)).collect();
        let mut arrivals = Vec::new();
        loop {
            let stopping = self.shared.stop.load(Ordering::Acquire);
            let mut idle = true;
            let mut over = true;
            for (at, port) in mine.iter().filter(|_| source.is_some() && !stopping) {
                arrivals.clear();
                let look = port
                    .receive(&mut arrivals)
                    .map_err(|error| ServiceError::Port {
                        port: port.name().to_owned(),
                        error,
                    })?;
                over &= look == Look::Over;
                idle &= !matches!(look, Look::Frames(_));
                let departures = self.judge(*at, &mut arrivals);
                for departure in departures {
                    self.carry_out(departure);
                }
            }
            if over {
                source = None;
            }
            // Read before the queue is emptied: what the last source steered is in it.
            let alone = self.shared.sources.load(Ordering::Acquire) == 0;
            idle &= !self.empty_queue();
            if alone && idle {
                return Ok(());
            }
            if idle {
                self.wait(&mine);
            }
        }
    }

    /// Runs the program over a batch.
    fn judge(&mut self, from: usize, arrivals: &mut Vec<Arrival>) -> Vec<Departure> {
        let mut departures = Vec::with_capacity(arrivals.len());
        if arrivals.is_empty() {
            return departures;
        }
        let ifindex = self.shared.service.ports[from].ifindex();
        let mut program = self
            .shared
            .program
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for arrival in arrivals.drain(..) {
            self.frame.reset(&arrival.frame);
            self.seen += 1;
            let env = Env {
                now_ns: arrival.now_ns,
                ingress_ifindex: ifindex,
                cpu: self.number as u32,
                random_seed: self.seen << 16 | self.number as u64,
                instruction_budget: self.shared.service.instruction_budget,
                ..Env::default()
            };
            let verdict = program.run_xdp(&mut self.frame, &env);
            let count = &mut self.totals.ports[from];
            count.received += 1;
            let orders = match verdict {
                Ok(DROP) => {
                    count.drop += 1;
                    continue;
                }
                Ok(PASS) => {
                    count.pass += 1;
                    vec![Order::Pass]
                }
                Ok(TX) => {
                    count.tx += 1;
                    vec![Order::Send(from)]
                }
                Ok(REDIRECT) => {
                    count.redirect += 1;
                    self.targets(&program, from)
                }
                Ok(_) => {
                    count.aborted += 1;
                    continue;
                }
                Err(fault) => {
                    count.aborted += 1;
                    self.totals.faults += 1;
                    self.totals.first_fault.get_or_insert(fault);
                    continue;
                }
            };
            departures.push(Departure {
                frame: self.frame.data().to_vec(),
                now_ns: arrival.now_ns,
                from,
                orders,
            });
        }
        departures
    }

    /// Where the program's last redirect goes. Failures are counted here.
    fn targets(&mut self, program: &Machine, from: usize) -> Vec<Order> {
        let service = self.shared.service;
        let port_of = |ifindex: u32| service.ports.iter().position(|p| p.ifindex() == ifindex);
        let mut orders = Vec::new();
        for target in redirect::targets(program, service.ports[from].ifindex()) {
            match target {
                RedirectTarget::Interface(ifindex) => match port_of(ifindex) {
                    Some(port) => orders.push(Order::Send(port)),
                    None => self.totals.no_port += 1,
                },
                RedirectTarget::Cpu { cpu, room } if cpu < service.workers => {
                    orders.push(Order::Steer(cpu, room));
                }
                RedirectTarget::Cpu { .. } => self.totals.no_worker += 1,
                RedirectTarget::Socket => self.totals.no_socket += 1,
                RedirectTarget::SecondProgram => self.totals.second_program += 1,
                RedirectTarget::Nothing => self.totals.no_port += 1,
            }
        }
        orders
    }

    fn carry_out(&mut self, departure: Departure) {
        let Departure {
            frame,
            now_ns,
            from,
            orders,
        } = departure;
        for order in orders {
            match order {
                Order::Send(port) => self.send(port, &frame, now_ns),
                Order::Pass => self.pass(from, &frame, now_ns),
                Order::Steer(worker, room) => {
                    let Some(queue) = self.shared.queues.get(worker) else {
                        self.totals.no_worker += 1;
                        continue;
                    };
                    let mut frames = queue.frames.lock().unwrap_or_else(PoisonError::into_inner);
                    if frames.len() >= room {
                        self.totals.queue_full += 1;
                        continue;
                    }
                    frames.push_back(Departure {
                        frame: frame.clone(),
                        now_ns,
                        from,
                        orders: vec![Order::Pass],
                    });
                    self.totals.steered += 1;
                    // A bell that rings already need not be rung.
                    let _ = rustix::io::write(&queue.bell, &1u64.to_ne_bytes());
                }
            }
        }
    }

    fn pass(&mut self, from: usize, frame: &[u8], now_ns: u64) {
        match self.shared.service.pass {
            Pass::Across => self.send(1 - from, frame, now_ns),
            Pass::Port => {
                let result = self.shared.service.ports[from].pass(frame, now_ns);
                self.note(&result);
            }
        }
    }

    fn send(&mut self, port: usize, frame: &[u8], now_ns: u64) {
        let result = self.shared.service.ports[port].send(frame, now_ns);
        self.totals.ports[port].sent += u64::from(result.is_ok());
        self.note(&result);
    }

    fn note(&mut self, result: &io::Result<()>) {
        use rustix::io::Errno;
        let Err(error) = result else {
            return;
        };
        let count = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MSGSIZE) => &mut self.totals.too_big,
            Some(Errno::NOBUFS | Errno::AGAIN) => &mut self.totals.no_room,
            _ => &mut self.totals.not_sent,
        };
        *count += 1;
    }

    /// Deals with what was steered here; whether there was anything.
    fn empty_queue(&mut self) -> bool {
        let Some(queue) = self.shared.queues.get(self.number) else {
            return false;
        };
        let frames =
            std::mem::take(&mut *queue.frames.lock().unwrap_or_else(PoisonError::into_inner));
        let any = !frames.is_empty();
        for departure in frames {
            self.carry_out(departure);
        }
        any
    }

    /// Waits until a port has frames or the bell rings, but not for long.
    fn wait(&self, mine: &[(usize, &dyn Port)]) {
        let bell = self.shared.queues.get(self.number).map(|q| q.bell.as_fd());
        let fds = mine.iter().filter_map(|(_, port)| port.readable());
        let mut fds: Vec<PollFd<'_>> = fds
            .chain(bell)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // Interrupted or not, the loop looks at everything again.
        let _ = poll(&mut fds, Some(&IDLE));
        if let Some(bell) = bell {
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
    }
}
